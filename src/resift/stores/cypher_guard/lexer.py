"""Cypher text to tokens. Whatever two engines could read differently is refused here."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from resift.errors import UnsafeCypherError
from resift.stores.cypher_guard.words import KEYWORDS

WORD, NAME, STRING, NUMBER, PARAMETER, SYMBOL = "word", "name", "string", "number", "parameter", "symbol"


class Token(NamedTuple):
    """One token: its kind, its text (a name without backticks) and where it starts."""

    kind: str
    text: str
    start: int

    @property
    def key(self) -> str:
        """The word in capitals, or "" for everything that can never be a keyword."""
        return self.text.upper() if self.kind == WORD else ""

    def is_(self, *symbols: str) -> bool:
        """Whether this is one of these symbols."""
        return self.kind == SYMBOL and self.text in symbols


# Possessive quantifiers: an unterminated quote fails at once instead of backtracking.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]++)
    | (?P<line>//[^\n]*+)
    | (?P<block>/\*(?:[^*]|\*(?!/))*+\*/)
    | (?P<string>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    | (?P<name>`(?:[^`]|``)*+`)
    | (?P<parameter>\$(?:[A-Za-z0-9_]|[^\x00-\x7f])++|\$`(?:[^`]|``)*+`)
    | (?P<number>0x[0-9a-fA-F]++|0o[0-7]++|(?:[0-9][0-9_]*+(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<word>(?:[A-Za-z_]|[^\x00-\x7f])(?:[A-Za-z0-9_]|[^\x00-\x7f])*+)
    | (?P<symbol>::|:=|\.\.|=~|\+=|\$(?=\()|[()\[\]{}.,:;=<>+\-*/%^|&!])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"[^\x20-\x7e\t\n\r]")
_JOINERS = "\u200c\u200d"


def tokens(text: str) -> list[Token]:
    """Return the tokens without spaces and comments; raise UnsafeCypherError for unclear characters."""
    _refuse_invisible(text)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise refusal(text, position, _unreadable(text, position))
        kind = str(match.lastgroup)
        _CHECKS.get(kind, _nothing)(text, match)
        if kind not in ("space", "line", "block"):
            value = match[0][1:-1].replace("``", "`") if kind == NAME else match[0]
            found.append(Token(kind, value, position))
        position = match.end()
    return found


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column, both from 1."""
    line = text.count("\n", 0, position) + 1
    return line, position - (text.rfind("\n", 0, position) + 1) + 1


def refusal(text: str, position: int, reason: str) -> UnsafeCypherError:
    """Return the error for a place in the text."""
    line, column = place(text, position)
    return UnsafeCypherError(reason, line=line, column=column)


def _refuse_invisible(text: str) -> None:
    for match in _SPECIAL.finditer(text):
        category = unicodedata.category(match[0])
        # Joiners are spelling inside a string (Persian, Hindi, emoji); elsewhere _word refuses them.
        if category in ("Cc", "Cf", "Cs", "Zl", "Zp") and match[0] not in _JOINERS:
            raise refusal(text, match.start(), f"the character U+{ord(match[0]):04X} is invisible")


def _unreadable(text: str, position: int) -> str:
    for mark, what in (("'", "string"), ('"', "string"), ("`", "backticked name"), ("/*", "comment")):
        if text.startswith(mark, position):
            return f"a {what} starts here and does not end"
    return "a character that has no place outside a string"


def _nothing(_text: str, _match: re.Match[str]) -> None:
    """Tokens that need no further look."""


def _line(text: str, match: re.Match[str]) -> None:
    _no_joiners(text, match)
    # Engines disagree on whether a carriage return alone ends a line.
    lone = re.search(r"\r(?!\n|$)", match[0])
    if lone or (match[0].endswith("\r") and match.end() == len(text)):
        raise refusal(text, match.start(), "a carriage return inside a line comment")


def _block(text: str, match: re.Match[str]) -> None:
    _no_joiners(text, match)
    if "/*" in match[0][1:]:
        raise refusal(text, match.start(), "a comment inside a comment, which engines end differently")


def _name(text: str, match: re.Match[str]) -> None:
    _no_joiners(text, match)
    if match[0] == "``" or "\\`" in match[0]:
        raise refusal(
            text, match.start(), "a backticked name that is empty or has a backslash before a backtick"
        )


def _word(text: str, match: re.Match[str]) -> None:
    word = match[0]
    if word.isascii():
        return
    for offset, char in enumerate(word):
        if not char.isascii() and unicodedata.category(char)[0] not in "LMN":
            raise refusal(text, match.start() + offset, f"the character U+{ord(char):04X} outside a string")
    look_alike = {word.upper(), word.lower().upper(), word.casefold().upper()} & KEYWORDS
    if unicodedata.normalize("NFKC", word) != word or look_alike:
        raise refusal(text, match.start(), "a word with look-alike characters; quote it in backticks")


def _no_joiners(text: str, match: re.Match[str]) -> None:
    for joiner in _JOINERS:
        if joiner in match[0]:
            raise refusal(text, match.start(), f"the character U+{ord(joiner):04X} outside a string")


_CHECKS = {"line": _line, "block": _block, "name": _name, "word": _word, "parameter": _word}
