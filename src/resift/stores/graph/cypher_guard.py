"""check_cypher: proves that a Cypher statement is read-only, without running it or using an engine.

The parser knows just enough grammar to decide whether an operand is expected or has just ended. So a word such
as `set` is a name where an operand is expected, and a clause after an operand. Two operands in a row, the sign
of a misread word, are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from resift.errors import InputError, UnsafeCypherError
from resift.stores.graph import cypher_tokens as tokens
from resift.stores.graph.cypher_tokens import NAME, NUMBER, PATH_WORDS, READ_STARTS, SYMBOL, WORD, Token, make_error

MAX_LENGTH = 200_000
MAX_DEPTH = 100

_ESCAPE = re.compile(r"\\u+([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_ESCAPE_OR_PAIR = re.compile(r"\\\\|\\u+([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")


def check_cypher(statement: str, *, procedures: Iterable[str] = (), functions: Iterable[str] = ()) -> None:
    """Raise UnsafeCypherError unless the statement is provably read-only. Nothing is executed.

    `procedures` and `functions` extend the built-in allowlists, for instance with the macros of a database.
    """
    if not isinstance(statement, str):
        raise UnsafeCypherError(f"the statement is a {type(statement).__name__}, not a string")
    if len(statement) > MAX_LENGTH:
        raise UnsafeCypherError(f"the statement has {len(statement)} characters, more than {MAX_LENGTH}")
    allowed_procedures = tokens.PROCEDURES | _read_names("procedures", procedures)
    allowed_functions = tokens.FUNCTIONS | _read_names("functions", functions)
    readings = [statement]
    if "\\" in statement:  # also check each way in which an engine may decode the escapes
        readings += [pattern.sub(_decode_escape, statement) for pattern in (_ESCAPE, _ESCAPE_OR_PAIR)]
    for text in dict.fromkeys(readings):
        _Parser(text, tokens.tokenize(text), allowed_procedures, allowed_functions).parse()


def check_cypher_for(store: object, statement: str) -> None:
    """Check a statement with the allowlists of any kind of graph store: its `procedures` and `functions`."""
    check_cypher(statement, procedures=getattr(store, "procedures", ()), functions=getattr(store, "functions", ()))


def _read_names(argument: str, names: Iterable[str]) -> set[str]:
    extra = [None] if isinstance(names, (str, bytes)) or not isinstance(names, Iterable) else list(names)
    if not all(isinstance(name, str) for name in extra):
        raise InputError(f"{argument} is a {type(names).__name__}; pass a list of names.")
    return {str(name).lower() for name in extra}


def _decode_escape(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    if digits is None:
        return match[0]
    code = int(digits, 16)
    return chr(code) if code < 0x110000 else "\ufffe"


# States of the parser inside a bracket: the kind of token that it expects next.
CLAUSE, OPERAND, AFTER, LABEL, CALLED, NAMED = "clause", "operand", "after", "label", "called", "named"

_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_END = Token(SYMBOL, "", -1)  # before the first token and after the last
_SUBQUERIES = frozenset({"EXISTS", "COUNT", "COLLECT"})
_AFTER_PATTERN = READ_STARTS | {"WHERE", "ORDER", "SKIP", "LIMIT", "UNION"}
_SOFT_PREFIXES = frozenset({"NOT", "DISTINCT"})


@dataclass(slots=True)
class _Frame:
    """One open bracket; the outermost frame is the statement itself."""

    opener: str
    state: str
    query: bool = False  # contains clauses: the statement or a subquery
    pattern: bool = False  # may contain a bare pattern: EXISTS { (a)-->(b) }
    then: str = AFTER  # state of the parent frame after this bracket closes
    cases: int = 0  # number of CASE expressions without their END so far
    clause: str = ""  # the current clause, in a frame that contains clauses
    relationship: bool = False  # -[…]-, where * and + are lengths, not operators
    subscript: bool = False  # x[…], where : separates two operands instead of starting a label
    function: str = ""  # the function that is called; TRIM and CAST have their own grammar
    star: bool = False  # a variable-length relationship: numbers and path words may follow


class _Parser:
    """Checks the tokens of one statement in a single pass; `parse` raises UnsafeCypherError."""

    def __init__(
        self, text: str, statement: Sequence[Token], procedures: frozenset[str], functions: frozenset[str]
    ) -> None:
        self._text, self._tokens = text, statement
        self._procedures, self._functions = procedures, functions
        self._index = 0
        self._frames = [_Frame("", CLAUSE, query=True)]

    def parse(self) -> None:
        """Parse the statement to its end."""
        self._skip_prefixes()
        if self._index >= len(self._tokens):
            raise self._error("the statement is empty", index=max(0, len(self._tokens) - 1))
        while self._index < len(self._tokens):
            token, state = self._peek(), self._top.state
            if token.kind == SYMBOL:
                self._take_symbol(token.text)
            elif token.kind != WORD:
                self._take_value(token)
            elif state == LABEL:
                self._advance(AFTER)
            elif state == OPERAND:
                self._take_operand_word(token.key)
            elif state == AFTER:
                self._take_word_after_operand(token.key)
            else:
                self._take_clause(token.key)
        if len(self._frames) > 1:
            reason = f"the bracket {self._top.opener!r} is never closed"
            raise self._error(reason, index=len(self._tokens) - 1)
        self._check_complete(self._top)

    # Position

    @property
    def _top(self) -> _Frame:
        return self._frames[-1]

    def _peek(self, ahead: int = 0) -> Token:
        index = self._index + ahead
        return self._tokens[index] if 0 <= index < len(self._tokens) else _END

    def _advance(self, state: str, *, tokens: int = 1) -> None:
        self._top.state = state
        self._index += tokens

    def _push(self, frame: _Frame) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self._error(f"brackets nested more than {MAX_DEPTH - 1} deep")
        self._frames.append(frame)
        self._index += 1

    def _error(self, reason: str, *, index: int | None = None) -> UnsafeCypherError:
        index = self._index if index is None else index
        start = self._tokens[index].start if index < len(self._tokens) else len(self._text)
        return make_error(self._text, start, reason)

    def _word_error(self, key: str) -> UnsafeCypherError:
        if key in tokens.FORBIDDEN:
            return self._error(f"{key} where a clause can start")
        shown = key if key in tokens.KEYWORDS else "a word"
        return self._error(f"{shown} where no read clause or operator is allowed")

    def _name_error(self, kind: str, name: str) -> UnsafeCypherError:
        shown = repr(name) if len(name) <= 60 and name.isascii() else "of this name"
        return self._error(f"the {kind} {shown} is not on the allowlist of read-only {kind}s")

    def _check_complete(self, frame: _Frame) -> None:
        index = min(self._index, len(self._tokens) - 1)
        if frame.cases:
            raise self._error("CASE without END", index=index)
        if frame.state in (CLAUSE, LABEL) or (frame.query and frame.state == OPERAND):
            raise self._error("the text ends where more is expected", index=index)

    def _read_dotted_name(self) -> tuple[str, int]:
        """Return the dotted name at this position, in lowercase, and its number of tokens."""
        if self._peek().kind not in (WORD, NAME):
            return "", 0
        name, length = self._peek().text, 1
        while self._peek(length).is_(".") and self._peek(length + 1).kind in (WORD, NAME):
            name += f".{self._peek(length + 1).text}"
            length += 2
        return name.lower(), length

    # Words

    def _take_operand_word(self, key: str) -> None:
        before = self._peek(-1)
        if self._is_prefix(key, before):
            self._advance(OPERAND)
        elif key == "CASE" and not _ends_operand(self._peek(1)):
            self._top.cases += 1
            self._advance(OPERAND)
        elif key in _SUBQUERIES and self._peek(1).is_("{"):
            self._index += 1
            self._push(_Frame("{", CLAUSE, query=True, pattern=key != "COLLECT"))
        elif self._top.opener == "{" and not self._top.query and self._is_map_key(before):
            self._advance(OPERAND, tokens=2)
        elif not self._take_function_call():
            # Reject a clause keyword as a name if the word before it may itself be a name.
            if key in tokens.FORBIDDEN and before.key in _SOFT_PREFIXES and self._peek(1).is_("[", "{"):
                raise self._word_error(key)
            self._advance(AFTER)

    def _is_prefix(self, key: str, before: Token) -> bool:
        """Return whether the word is a prefix of an operand and not an operand itself."""
        following = self._peek(1)
        match key:
            case "NOT" | "DISTINCT":
                return not _ends_operand(following)
            case "WHEN":
                return before.key == "CASE" and self._top.cases > 0
            case "WHERE":
                return before.is_("(", "[", "|")
            case "BOTH" | "LEADING" | "TRAILING":
                return before.is_("(") and self._top.function == "trim"
            case "TYPED" | "NFC" | "NFD" | "NFKC" | "NFKD":
                return before.key in ("IS", "NOT") and following.kind == WORD
        is_function = key in ("ALL", "ANY") or key.lower() in self._functions
        continues_path = following.kind == NUMBER or following.key in PATH_WORDS
        continues_path = continues_path or (following.is_("(") and not is_function)
        return continues_path and key in PATH_WORDS and self._in_path()

    def _in_path(self) -> bool:
        """Return whether SHORTEST, TRAIL and similar words are path keywords here, not functions."""
        query = next(frame for frame in reversed(self._frames) if frame.query)
        return self._top.star or query.clause == "MATCH" or query.pattern

    def _is_map_key(self, before: Token) -> bool:
        return self._peek(1).is_(":") and before.is_("{", ",")

    def _take_function_call(self) -> bool:
        """Take the name and opening bracket of an allowed function call; return False if there is no call here."""
        name, length = self._read_dotted_name()
        if not self._peek(length).is_("("):
            return False
        if name not in self._functions:
            raise self._name_error("function", name)
        self._advance(AFTER, tokens=length)
        self._push(_Frame("(", OPERAND, function=name))
        return True

    def _take_word_after_operand(self, key: str) -> None:
        top, following = self._top, self._peek(1)
        counts_paths = self._peek(-1).kind == NUMBER and key in ("PATH", "PATHS", "GROUP", "GROUPS")
        if key in tokens.INFIX or (key == "NOT" and following.key in ("NULL", "IN")):
            self._advance(OPERAND)
        elif key in ("STARTS", "ENDS") and following.key == "WITH":
            self._advance(OPERAND, tokens=2)
        elif key == "AS":
            self._index += 1
            if top.function == "cast":
                self._take_type()
            elif self._peek().kind not in (WORD, NAME):
                raise self._error("AS without a name")
            else:
                self._advance(NAMED if top.query else AFTER)  # in a clause, the name ends the item
        elif key in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
            self._advance(AFTER)
        elif top.cases and key in ("WHEN", "THEN", "ELSE"):
            self._advance(OPERAND)
        elif top.cases and key == "END":
            top.cases -= 1
            self._advance(AFTER)
        elif key == "WHERE" or (key == "FROM" and top.function == "trim"):
            self._advance(OPERAND)
        elif counts_paths or (top.star and key in PATH_WORDS):
            self._advance(AFTER)
        else:
            self._take_clause(key)

    # Clauses

    def _skip_prefixes(self) -> None:
        seen: set[str] = set()
        while (key := self._peek().key) in ("EXPLAIN", "PROFILE", "CYPHER") and key not in seen:
            seen.add(key)
            self._index += 1
            if key == "EXPLAIN" and self._peek().key == "LOGICAL":
                self._index += 1
            if key == "CYPHER" and self._peek().kind == NUMBER:
                self._index += 1
            while key == "CYPHER" and self._peek().text.lower() in tokens.PREPARSER_OPTIONS and self._peek(1).is_("="):
                if self._peek(2).kind not in (WORD, NUMBER):
                    raise self._error("a CYPHER option without a plain value")
                self._index += 3

    def _take_clause(self, key: str) -> None:
        """Take a word where only a clause can start; raise an error for any other word."""
        top = self._top
        if not top.query:
            raise self._word_error(key)
        if key in READ_STARTS:
            if key == "OPTIONAL":
                self._index += 1
                key = self._peek().key
                if key not in ("MATCH", "CALL"):
                    raise self._error("OPTIONAL without MATCH or CALL")
            top.clause = key
            self._advance(OPERAND)
            if key == "CALL":
                self._take_call()
        elif top.state == CLAUSE:
            raise self._word_error(key)
        elif key in tokens.CONTINUATIONS:
            top.clause = key
            self._advance(OPERAND)
        elif key == "UNION":
            self._advance(CLAUSE, tokens=2 if self._peek(1).key in ("ALL", "DISTINCT") else 1)
        elif key == "ORDER" and self._peek(1).key == "BY":
            top.clause = key
            self._advance(OPERAND, tokens=2)
        elif key == "FINISH":
            self._advance(CALLED)
        else:
            raise self._word_error(key)

    def _take_call(self) -> None:
        """Take a subquery, or the name of an allowed procedure."""
        if self._peek().is_("(", "{"):
            if self._peek().is_("("):  # the imported names: CALL (a, b) { … }
                self._index += 1
                while self._peek().kind in (WORD, NAME) or self._peek().is_(",", "*"):
                    self._index += 1
                if not self._peek().is_(")"):
                    raise self._error("CALL that imports something other than names")
                self._index += 1
            if not self._peek().is_("{"):
                raise self._error("CALL without a subquery")
            self._push(_Frame("{", CLAUSE, query=True, then=CALLED))
            return
        name, length = self._read_dotted_name()
        if not length:
            raise self._error("CALL without a procedure")
        if name not in self._procedures:
            raise self._name_error("procedure", name)
        self._advance(CALLED, tokens=length)
        if self._peek().is_("("):
            self._push(_Frame("(", OPERAND, then=CALLED))

    def _take_type(self) -> None:
        """Take the complete type in CAST(x AS type): INT64[], DECIMAL(18, 3), STRUCT(a UNION(b INT64, c STRING))."""
        if self._peek().kind not in (WORD, NAME):
            raise self._error("another token where a name is expected")
        self._index += 1
        closers: list[str] = []
        while closers or not self._peek().is_(")"):
            token = self._peek()
            if token.is_("(", "["):
                closers.append(_CLOSERS[token.text])
            elif closers and token.is_(closers[-1]):
                closers.pop()
            elif not (closers and (token.kind in (WORD, NAME, NUMBER) or token.is_(","))):
                raise self._error("something other than a type after AS")
            self._index += 1
        self._top.state = AFTER

    # Values and symbols

    def _take_value(self, token: Token) -> None:
        """Take a string, number, parameter or backticked name."""
        top = self._top
        if top.state == LABEL:
            self._advance(AFTER)
        elif top.state == OPERAND:
            if top.opener == "{" and token.kind in (NAME, tokens.STRING) and self._is_map_key(self._peek(-1)):
                self._advance(OPERAND, tokens=2)
                return
            if token.kind != NAME or not self._take_function_call():
                self._advance(AFTER)
        elif token.kind == NUMBER and top.star and top.state == AFTER:
            self._advance(AFTER)
        else:
            raise self._error(f"a {token.kind} where an operator or a clause is expected")
        if token.kind == NUMBER and self._peek().is_("."):
            raise self._error("a dot after a number")

    def _take_symbol(self, text: str) -> None:
        top = self._top
        if text in _CLOSERS:
            self._open_bracket(text)
        elif text in ")]}":
            if _CLOSERS.get(top.opener) != text:
                raise self._error(f"{text!r} does not match an open bracket")
            self._check_complete(top)
            self._frames.pop()
            self._advance(top.then)
        elif text == ";":
            if len(self._frames) > 1 or len(self._tokens) - self._index > 1:
                raise self._error("more than one statement")
            self._index += 1
        elif text == "+=":
            raise self._error("+= writes")
        elif text == "," and top.state == NAMED:
            self._advance(OPERAND)
        elif top.state in (CLAUSE, CALLED, NAMED):
            raise self._error(f"{text!r} where a clause is expected")
        elif top.state != LABEL:
            self._take_operator(text)
        elif text in ("!", "$"):
            self._index += 1
        elif text == "%":  # any label
            self._advance(AFTER)
        else:
            raise self._error(f"{text!r} where a name is expected")

    def _take_operator(self, text: str) -> None:
        top, following = self._top, self._peek(1)
        # + and * can repeat the preceding path pattern: ((a)-->(b))+ RETURN a.
        repeats_pattern = self._peek(-1).is_(")") and following.key in _AFTER_PATTERN
        if text == ":" and top.subscript:
            self._advance(OPERAND)
        elif text in (":", "::"):
            self._advance(LABEL)
        elif text == "!" and top.state == AFTER and following.is_("="):
            self._advance(OPERAND, tokens=2)
        elif text == "!" and top.state == AFTER:  # the factorial of the preceding operand
            self._advance(AFTER)
        elif text == ".":
            if following.kind not in (WORD, NAME) and not following.is_("*"):
                raise self._error("a dot without a property name")
            if self._peek(2).is_("(") and not following.is_("*"):
                raise self._error("a call on a value")
            self._advance(AFTER, tokens=2)
        elif text == "*":
            top.star = top.relationship
            infix = top.state == AFTER and not top.star and not repeats_pattern
            self._advance(OPERAND if infix else AFTER)
        elif text == "+" and repeats_pattern:
            self._advance(AFTER)
        else:
            self._advance(OPERAND)

    def _open_bracket(self, text: str) -> None:
        top = self._top
        if top.state == CLAUSE and not (top.pattern and text == "("):
            raise self._error(f"{text!r} where a clause is expected")
        if top.state in (CALLED, NAMED) or (top.state == LABEL and text != "("):
            raise self._error(f"{text!r} where a clause or a name is expected")
        if text == "(" and top.state == AFTER and not self._may_precede_bracket(self._peek(-1)):
            raise self._error("'(' after something that is not a function")
        relationship = text == "[" and self._peek(-1).is_("-")
        subscript = text == "[" and top.state == AFTER
        top.state = AFTER
        self._push(_Frame(text, OPERAND, relationship=relationship, subscript=subscript))

    def _may_precede_bracket(self, token: Token) -> bool:
        """Return whether an opening bracket may follow this operand, which is legal only in path patterns."""
        if self._top.star and (token.kind == NUMBER or token.is_("*", "..") or token.key in PATH_WORDS):
            return True
        if token.is_(")", "}"):
            return True
        if not (self._top.query and self._in_path()):
            return False
        # A pattern may follow SHORTEST 2 or SHORTEST 2 PATHS.
        before = self._peek(-2)
        counts_paths = token.kind == NUMBER and before.key in PATH_WORDS
        return counts_paths or (token.key in PATH_WORDS and before.kind == NUMBER)


def _ends_operand(token: Token) -> bool:
    return token is _END or token.is_(",", ")", "]", "}", ";", ".", "=", "<", ">")
