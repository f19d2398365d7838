"""Graph stores, and the guard that accepts only read-only Cypher statements."""

from __future__ import annotations

from resift.stores.graph.cypher_guard import check_cypher
from resift.stores.graph.ladybug import LadybugGraphStore

__all__ = ["LadybugGraphStore", "check_cypher"]
