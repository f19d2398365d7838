"""Graph stores and the guard that admits only Cypher statements that read.

ladybug.py          LadybugGraphStore and the child process that runs the engine
cypher_guard.py     check_cypher: a parser that proves that a statement only reads
cypher_tokens.py    characters to tokens, and the words, procedures and functions the guard knows
"""

from __future__ import annotations

from resift.stores.graph.cypher_guard import check_cypher
from resift.stores.graph.ladybug import LadybugGraphStore

__all__ = ["LadybugGraphStore", "check_cypher"]
