"""Everything that stands where a clause can: prefixes, read clauses, CALL and functions."""

from __future__ import annotations

from resift.stores.cypher_guard.cursor import AFTER, CALLED, CLAUSE, OPERAND, Frame
from resift.stores.cypher_guard.hints import Hints
from resift.stores.cypher_guard.lexer import NAME, NUMBER, WORD
from resift.stores.cypher_guard.words import CONTINUATIONS, PREPARSER_OPTIONS, READ_STARTS


class Clauses(Hints):
    """Takes clauses; every word that is not a known read clause is refused."""

    def _skip_prefixes(self) -> None:
        seen: set[str] = set()
        while (key := self._peek().key) in ("EXPLAIN", "PROFILE", "CYPHER") and key not in seen:
            seen.add(key)
            self._at += 1
            if key == "EXPLAIN" and self._peek().key == "LOGICAL":
                self._at += 1
            if key == "CYPHER":
                self._skip_options()

    def _skip_options(self) -> None:
        if self._peek().kind == NUMBER:
            self._at += 1
        while self._peek().text.lower() in PREPARSER_OPTIONS and self._peek(1).is_("="):
            if self._peek(2).kind not in (WORD, NUMBER):
                raise self._refuse("an option of CYPHER without a plain value")
            self._at += 3

    def _clause(self, key: str) -> None:
        """Take a word at a place where only a clause can stand."""
        state = self._top.state
        if not self._top.query:
            raise self._refuse_word(key)
        if key in READ_STARTS:
            self._read_clause(key)
        elif state == CLAUSE:
            raise self._refuse_word(key)
        elif key == "HINT":
            self._join_hint()
        elif key in CONTINUATIONS:
            self._top.clause = key
            self._go(OPERAND)
        elif key == "UNION":
            wide = self._peek(1).key in ("ALL", "DISTINCT")
            self._go(CLAUSE, tokens=2 if wide else 1)
        elif key == "ORDER" and self._peek(1).key == "BY":
            self._top.clause = key
            self._go(OPERAND, tokens=2)
        elif key == "FINISH":
            self._go(CALLED)
        elif key == "USING":
            self._index_hint()
        else:
            raise self._refuse_word(key)

    def _read_clause(self, key: str) -> None:
        if key == "OPTIONAL":
            self._at += 1
            key = self._peek().key
            if key not in ("MATCH", "CALL"):
                raise self._refuse("OPTIONAL without MATCH or CALL")
        self._top.clause = key
        if key == "CALL":
            self._at += 1
            self._call()
        else:
            self._go(OPERAND)

    def _calls_function(self) -> bool:
        """Take a function's name and its opening bracket when one is called here.

        No other place lets a name stand before a bracket, so no call escapes the list.
        """
        name, length = self._dotted()
        if not self._peek(length).is_("("):
            return False
        if name not in self._functions:
            raise self._refuse_name("function", name)
        self._go(AFTER, tokens=length)
        self._push(Frame("(", OPERAND, function=name))
        return True

    def _call(self) -> None:
        """Take what follows CALL: a subquery, or the name of an allowed procedure."""
        if self._peek().is_("(", "{"):
            self._skip_imports()
            self._push(Frame("{", CLAUSE, query=True, then=CALLED))
            return
        name, length = self._dotted()
        if not length:
            raise self._refuse("CALL without a procedure")
        if name not in self._procedures:
            raise self._refuse_name("procedure", name)
        self._go(CALLED, tokens=length)
        if self._peek().is_("("):
            self._push(Frame("(", OPERAND, then=CALLED))

    def _skip_imports(self) -> None:
        if self._peek().is_("("):
            self._at += 1
            while self._peek().kind in (WORD, NAME) or self._peek().is_(",", "*"):
                self._at += 1
            if not self._peek().is_(")"):
                raise self._refuse("CALL with something else than names to import")
            self._at += 1
        if not self._peek().is_("{"):
            raise self._refuse("CALL without a subquery")
