"""The knowledge-graph agent: questions answered from a pack, with sources. A client of retrieval.

pack_schema.py   the tables of a pack and every statement that is ever sent to it
articles.py      files to articles; links.py: which article a link means
pack_build.py    articles to a pack, resumable; pack.py: reading one
expansion.py     the neighbourhood of some articles; graph_reranker.py: centrality in it
first_stage.py    sections by vectors or by words; widening.py: those that only the graph knows of
question_words.py, evidence.py   whether what was found says anything about the question
passages.py      numbered passages, sentences, citations
extractive.py, chat_writer.py, multi_doc.py   from passages to an answer
knowledge_graph_agent.py   all of it in order
lighthouse_sample.py, sample/    articles of our own, to try it on
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.agent.chat_writer import ChatWriter as ChatWriter
    from resift.agent.graph_reranker import GraphReranker as GraphReranker
    from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent as KnowledgeGraphAgent
    from resift.agent.lighthouse_sample import sample_pack as sample_pack
    from resift.agent.multi_doc import MultiDocSynthesizer as MultiDocSynthesizer
    from resift.agent.pack import Pack as Pack
    from resift.agent.pack_build import build_pack as build_pack
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        chat_writer: ChatWriter
        graph_reranker: GraphReranker
        knowledge_graph_agent: KnowledgeGraphAgent
        lighthouse_sample: sample_pack
        multi_doc: MultiDocSynthesizer
        pack: Pack
        pack_build: build_pack
        """,
    )
