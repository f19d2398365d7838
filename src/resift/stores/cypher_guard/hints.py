"""What holds names and no expressions: hints to the planner, and the types of CAST.

Each is read here from its first token to its last, so that nothing in it can be taken for an operand.
"""

from __future__ import annotations

from resift.stores.cypher_guard.cursor import AFTER, CLOSER, Cursor
from resift.stores.cypher_guard.lexer import NAME, NUMBER, WORD, Token

_HINT_WORDS = frozenset({"INDEX", "SCAN", "SEEK", "TEXT", "RANGE", "POINT"})


class Hints(Cursor):
    """Takes hints and types; anything but names, numbers and brackets in them is refused."""

    def _join_hint(self) -> None:
        """Take Ladybug's join order: HINT ((a JOIN e) JOIN b) MULTI_JOIN f."""
        self._at += 1
        depth = 0
        while True:
            while self._peek().is_("("):
                depth += 1
                self._at += 1
            self._take_name()
            while depth and self._peek().is_(")"):
                depth -= 1
                self._at += 1
            if self._peek().key not in ("JOIN", "MULTI_JOIN"):
                break
            self._at += 1
        if depth:
            raise self._refuse("a join hint whose brackets do not match")
        self._top.state = AFTER

    def _index_hint(self) -> None:
        """Take Neo4j's hints: USING INDEX n:Label(property), USING SCAN n:Label, USING JOIN ON a, b."""
        self._at += 1
        if self._peek().key == "JOIN" and self._peek(1).key == "ON":
            self._at += 2
            self._take_names()
        elif self._peek().key in _HINT_WORDS:
            while self._peek().key in _HINT_WORDS and not self._peek(1).is_(":"):
                self._at += 1
            self._take_name()
            self._take_symbol(":")
            self._take_name()
            if self._peek().is_("("):
                self._at += 1
                self._take_names()
                self._take_symbol(")")
        else:
            raise self._refuse_word("USING")
        self._top.state = AFTER

    def _type(self) -> None:
        """Take the type of CAST(x AS type): INT64[], DECIMAL(18, 3), STRUCT(a UNION(b INT64, c STRING))."""
        self._take_name()
        closers: list[str] = []
        while (token := self._peek()) and (closers or not token.is_(")")):
            if token.text in CLOSER and token.is_("(", "["):
                closers.append(CLOSER[token.text])
            elif closers and token.is_(closers[-1]):
                closers.pop()
            elif not (closers and _is_part_of_type(token)):
                raise self._refuse("something else than a type after AS")
            self._at += 1
        self._top.state = AFTER

    def _take_name(self) -> None:
        if self._peek().kind not in (WORD, NAME):
            raise self._refuse("something else where a name is due")
        self._at += 1

    def _take_names(self) -> None:
        self._take_name()
        while self._peek().is_(",", "."):
            self._at += 1
            self._take_name()

    def _take_symbol(self, symbol: str) -> None:
        if not self._peek().is_(symbol):
            raise self._refuse(f"something else where {symbol!r} is due")
        self._at += 1


def _is_part_of_type(token: Token) -> bool:
    return token.kind in (WORD, NAME, NUMBER) or token.is_(",")
