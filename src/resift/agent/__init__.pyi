from .knowledge_graph_agent import KnowledgeGraphAgent as KnowledgeGraphAgent
from .multi_doc import MultiDocSynthesizer as MultiDocSynthesizer
from .pack import GraphReranker as GraphReranker
from .pack import Pack as Pack
from .pack_build import build_pack as build_pack
from .pack_build import sample_pack as sample_pack
from .writers import ChatWriter as ChatWriter
