"""The knowledge-graph agent: answers questions from a pack, with sources.

articles.py     reads files into articles and resolves the links between them
pack_build.py   builds a pack from articles; pack.py reads it, follows its links and computes centrality
answerability.py   estimates whether a passage or sentence answers the question
multi_doc.py    selects passages, checks citations and returns the answer as plain data
writers.py      writes answers by quoting sentences or with a chat model
knowledge_graph_agent.py   runs all steps in order
sample/         sample articles and questions
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent as KnowledgeGraphAgent
    from resift.agent.multi_doc import MultiDocSynthesizer as MultiDocSynthesizer
    from resift.agent.pack import GraphReranker as GraphReranker
    from resift.agent.pack import Pack as Pack
    from resift.agent.pack_build import build_pack as build_pack
    from resift.agent.pack_build import sample_pack as sample_pack
    from resift.agent.writers import ChatWriter as ChatWriter
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        knowledge_graph_agent: KnowledgeGraphAgent
        multi_doc: MultiDocSynthesizer
        pack: GraphReranker Pack
        pack_build: build_pack sample_pack
        writers: ChatWriter
        """,
    )
