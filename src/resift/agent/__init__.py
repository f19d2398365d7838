"""The knowledge-graph agent: answers questions from a pack, with sources.

articles.py     reads files into articles and resolves the links between them
pack_build.py   builds a pack from articles; pack.py reads it, follows its links and computes centrality
answerability.py   estimates whether a passage or sentence answers the question
multi_doc.py    selects passages, checks citations and returns the answer as plain data
writers.py      writes answers by quoting sentences or with a chat model
knowledge_graph_agent.py   runs all steps in order
sample/         sample articles and questions
"""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
