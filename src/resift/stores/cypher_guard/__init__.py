"""Says whether a Cypher statement only reads; knows no engine and opens nothing (N6).

lexer.py    characters to tokens; refuses what engines read differently
words.py    the words, procedures and functions the guard knows
cursor.py   the place in the tokens, and the stack of open brackets
clauses.py  what may stand where a clause can
walk.py     tokens to a verdict: operands, operators, brackets
check.py    one statement, as written and with its escapes decoded
"""

from __future__ import annotations

from resift.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.cypher_guard.check import check_cypher as check_cypher
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            ".check": ["check_cypher"],
        },
    )
