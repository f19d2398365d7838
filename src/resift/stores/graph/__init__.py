"""Graph stores, and the guard that accepts only read-only Cypher statements.

ladybug.py          LadybugGraphStore and the child process that runs the engine
cypher_guard.py     check_cypher: a parser that proves that a statement is read-only
cypher_tokens.py    the tokenizer
cypher_words.toml   the keywords, procedures and functions known to the guard
"""

from __future__ import annotations

from resift.stores.graph.cypher_guard import check_cypher
from resift.stores.graph.ladybug import LadybugGraphStore

__all__ = ["LadybugGraphStore", "check_cypher"]
