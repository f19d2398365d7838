from .agent.knowledge_graph_agent import KnowledgeGraphAgent as KnowledgeGraphAgent
from .errors import ResiftError as ResiftError
from .index import Index as Index
from .models.embedder import Embedder as Embedder
from .pipeline.node import RetrievalNode as RetrievalNode
from .pipeline.pipeline import Pipeline as Pipeline
from .pipeline.two_stage import TwoStage as TwoStage
from .plugins import available_rerankers as available_rerankers
from .plugins import load_reranker as load_reranker
from .protocols import Reranker as Reranker
from .ranking.fusion.methods import fuse as fuse
from .ranking.fusion.rerankers import RRFReranker as RRFReranker
from .rerankers.cross_encoder import CrossEncoderReranker as CrossEncoderReranker
from .reranking import arerank as arerank
from .reranking import rerank as rerank
from .resilience.tiered import Tiered as Tiered
from .server.app import serve_app as serve_app
from .stores.memory import MemoryStore as MemoryStore
from .stores.sqlite import SQLiteStore as SQLiteStore
from .types import Hit as Hit
from .types import Ranking as Ranking

__version__: str
