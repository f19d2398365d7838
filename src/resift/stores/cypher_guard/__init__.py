"""Says whether a Cypher statement only reads; knows no engine and opens nothing (N6).

lexer.py    characters to tokens; refuses what engines read differently
words.py    the words, procedures and functions the guard knows
cursor.py   the place in the tokens, and the stack of open brackets
clauses.py  what may stand where a clause can
walk.py     tokens to a verdict: operands, operators, brackets
check.py    one statement, as written and with its escapes decoded
"""

from resift.stores.cypher_guard.check import check_cypher

__all__ = ["check_cypher"]
