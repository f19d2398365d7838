"""Says whether a Cypher statement only reads; knows no engine and opens nothing.

lexer.py    characters to tokens; refuses what engines read differently
words.py    the words, procedures and functions the guard knows
cursor.py   the place in the tokens, and the stack of open brackets
hints.py    planner hints and types: names only
clauses.py  what may stand where a clause can
walk.py     tokens to a verdict: operands, operators, brackets
check.py    one statement, as written and with its escapes decoded
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.cypher_guard.check import check_cypher as check_cypher
    from resift.stores.cypher_guard.check import check_cypher_for as check_cypher_for
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        check: check_cypher check_cypher_for
        """,
    )
