"""Tokenizer for Cypher, which rejects text that two engines could interpret differently."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from importlib import resources
from typing import NamedTuple

from resift.errors import UnsafeCypherError

WORD, NAME, STRING, NUMBER, PARAMETER, SYMBOL = "word", "name", "string", "number", "parameter", "symbol"


class Token(NamedTuple):
    """One token: its kind, its text (a name without backticks) and its position."""

    kind: str
    text: str
    start: int

    @property
    def key(self) -> str:
        """The word in uppercase, or "" for a token that cannot be a keyword."""
        return self.text.upper() if self.kind == WORD else ""

    def is_(self, *symbols: str) -> bool:
        """Return whether the token is one of these symbols."""
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
_UNTERMINATED = (("'", "string"), ('"', "string"), ("`", "backticked name"), ("/*", "comment"))


def tokenize(text: str) -> list[Token]:
    """Return the tokens without whitespace and comments; raise UnsafeCypherError for ambiguous characters."""
    for special in _SPECIAL.finditer(text):
        category = unicodedata.category(special[0])
        # Joiners are part of the spelling in strings (Persian, Hindi, emoji). Elsewhere they are rejected below.
        if category in ("Cc", "Cf", "Cs", "Zl", "Zp") and special[0] not in _JOINERS:
            raise make_error(text, special.start(), f"the character U+{ord(special[0]):04X} is invisible")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            reason = "a character that is not allowed outside a string"
            for mark, kind in _UNTERMINATED:
                if text.startswith(mark, position):
                    reason = f"a {kind} starts here and does not end"
            raise make_error(text, position, reason)
        kind = str(match.lastgroup)
        _check_token(text, kind, match)
        if kind not in ("space", "line", "block"):
            value = match[0][1:-1].replace("``", "`") if kind == NAME else match[0]
            tokens.append(Token(kind, value, position))
        position = match.end()
    return tokens


def make_error(text: str, position: int, reason: str) -> UnsafeCypherError:
    """Return an error with the line and column of a position in the text."""
    column = position - text.rfind("\n", 0, position)
    return UnsafeCypherError(reason, line=text.count("\n", 0, position) + 1, column=column)


def _check_token(text: str, kind: str, match: re.Match[str]) -> None:
    """Raise UnsafeCypherError for a token that engines interpret differently."""
    token, start = match[0], match.start()
    if kind in ("line", "block", NAME):
        for joiner in _JOINERS:
            if joiner in token:
                raise make_error(text, start, f"the character U+{ord(joiner):04X} outside a string")
    if kind == "line":
        # Engines disagree on whether a lone carriage return ends a line.
        alone = re.search(r"\r(?!\n|$)", token)
        if alone or (token.endswith("\r") and match.end() == len(text)):
            raise make_error(text, start, "a carriage return inside a line comment")
    elif kind == "block":
        if "/*" in token[1:]:
            raise make_error(text, start, "a nested comment, whose end differs between engines")
    elif kind == NAME:
        if len(token) == 2 or "\\`" in token:
            raise make_error(text, start, "a backticked name that is empty or contains a backslash before a backtick")
    elif kind in (WORD, PARAMETER) and not token.isascii():
        for offset, char in enumerate(token):
            if not char.isascii() and unicodedata.category(char)[0] not in "LMN":
                raise make_error(text, start + offset, f"the character U+{ord(char):04X} outside a string")
        look_alike = {token.upper(), token.lower().upper(), token.casefold().upper()} & KEYWORDS
        if unicodedata.normalize("NFKC", token) != token or look_alike:
            raise make_error(text, start, "a word with look-alike characters; quote it in backticks")


_TEXT = resources.files("resift.stores.graph").joinpath("cypher_words.toml").read_text(encoding="utf-8")
_WORDS = {name: frozenset(words.split()) for name, words in tomllib.loads(_TEXT).items()}

READ_STARTS, CONTINUATIONS, FORBIDDEN = _WORDS["read_starts"], _WORDS["continuations"], _WORDS["forbidden"]
INFIX, PATH_WORDS, PREPARSER_OPTIONS = _WORDS["infix"], _WORDS["path_words"], _WORDS["preparser_options"]
KEYWORDS = READ_STARTS | CONTINUATIONS | FORBIDDEN | INFIX | _WORDS["other_keywords"]
PROCEDURES, FUNCTIONS = _WORDS["procedures"], _WORDS["functions"]
