"""Where the walk stands: the tokens, the open brackets, and what may come next in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resift.errors import UnsafeCypherError
from resift.stores.cypher_guard.lexer import NAME, SYMBOL, WORD, Token, refusal
from resift.stores.cypher_guard.words import FORBIDDEN, KEYWORDS

MAX_DEPTH = 100

# What may come next inside a bracket.
CLAUSE, OPERAND, AFTER, LABEL, CALLED, NAMED = "clause", "operand", "after", "label", "called", "named"

CLOSER = {"(": ")", "[": "]", "{": "}"}
END = Token(SYMBOL, "", -1)
"""Stands before the first token and after the last."""


@dataclass(slots=True)
class Frame:
    """One open bracket; the outermost is the statement itself."""

    opener: str
    state: str
    query: bool = False  # holds clauses: the statement, or a subquery
    pattern: bool = False  # may hold a bare pattern: EXISTS { (a)-->(b) }
    then: str = AFTER  # the state of the parent once this closes
    cases: int = 0  # CASE … END still open here
    clause: str = ""  # the clause that the walk is in, where the frame holds clauses
    relationship: bool = False  # -[…]-, where * and + are lengths and not sums
    subscript: bool = False  # x[…], where : separates two operands and starts no label
    function: str = ""  # the function whose brackets these are: TRIM and CAST have a grammar of their own
    star: bool = False  # a variable-length relationship: numbers and path words may follow


class Cursor:
    """The tokens of one statement, the place in them, and the stack of open brackets."""

    def __init__(
        self,
        text: str,
        found: Sequence[Token],
        *,
        procedures: frozenset[str],
        functions: frozenset[str],
    ) -> None:
        self._text = text
        self._tokens = found
        self._procedures = procedures
        self._functions = functions
        self._at = 0
        self._frames = [Frame("", CLAUSE, query=True)]

    @property
    def _top(self) -> Frame:
        return self._frames[-1]

    @property
    def _query(self) -> Frame:
        """The innermost frame that holds clauses."""
        return next(frame for frame in reversed(self._frames) if frame.query)

    def _left(self) -> int:
        return len(self._tokens) - self._at

    def _peek(self, ahead: int = 0) -> Token:
        index = self._at + ahead
        return self._tokens[index] if 0 <= index < len(self._tokens) else END

    def _go(self, state: str, *, tokens: int = 1) -> None:
        self._top.state = state
        self._at += tokens

    def _refuse(self, reason: str, *, at: int | None = None) -> UnsafeCypherError:
        index = self._at if at is None else at
        start = self._tokens[index].start if index < len(self._tokens) else len(self._text)
        return refusal(self._text, start, reason)

    def _refuse_word(self, key: str) -> UnsafeCypherError:
        if key in FORBIDDEN:
            return self._refuse(f"{key} where a clause can start")
        named = key if key in KEYWORDS else "a word"
        return self._refuse(f"{named} where no read clause or operator can stand")

    def _dotted(self, start: int = 0) -> tuple[str, int]:
        """Return the dotted name ahead, in lower case, and how many tokens it has."""
        parts: list[str] = []
        ahead = start
        while self._peek(ahead).kind in (WORD, NAME):
            parts.append(self._peek(ahead).text)
            ahead += 1
            if not (self._peek(ahead).is_(".") and self._peek(ahead + 1).kind in (WORD, NAME)):
                break
            ahead += 1
        return ".".join(parts).lower(), ahead - start

    def _refuse_name(self, what: str, name: str) -> UnsafeCypherError:
        shown = repr(name) if len(name) <= 60 and name.isascii() else "of this name"
        return self._refuse(f"the {what} {shown} is not on the list of read-only ones")

    def _push(self, frame: Frame) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self._refuse(f"brackets nested more than {MAX_DEPTH - 1} deep")
        self._frames.append(frame)
        self._at += 1

    def _close(self, text: str) -> None:
        frame = self._top
        if CLOSER.get(frame.opener) != text:
            raise self._refuse(f"{text!r} closes no bracket")
        self._must_be_complete(frame)
        self._frames.pop()
        self._go(frame.then)

    def _must_be_complete(self, frame: Frame) -> None:
        if frame.cases:
            raise self._refuse("CASE without END", at=min(self._at, len(self._tokens) - 1))
        if frame.state in (CLAUSE, LABEL) or (frame.query and frame.state == OPERAND):
            raise self._refuse("the end, where more is due", at=min(self._at, len(self._tokens) - 1))
