from .client import ChatClient as ChatClient
from .client import Completion as Completion
from .providers import PROVIDERS as PROVIDERS
from .providers import Provider as Provider
from .scorer import HostedReranker as HostedReranker
from .scorer import get_production_cross_encoder_reranker as get_production_cross_encoder_reranker
from .scorer import hosted_reranker as hosted_reranker
from .transport import close_connections as close_connections
