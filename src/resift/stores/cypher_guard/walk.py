"""Tokens to a verdict: operands, operators and brackets between the clauses.

The walk knows enough grammar to tell an operand from the place after one. A clause can start only
after an operand, so a word such as `set` is a name where an operand is due and a clause where one
has just ended. Two operands in a row are refused: that is how a misread word would show itself.
"""

from __future__ import annotations

from resift.stores.cypher_guard.clauses import Clauses
from resift.stores.cypher_guard.cursor import AFTER, CALLED, CLAUSE, CLOSER, END, LABEL, NAMED, OPERAND, Frame
from resift.stores.cypher_guard.lexer import NAME, NUMBER, STRING, SYMBOL, WORD, Token
from resift.stores.cypher_guard.words import FORBIDDEN, INFIX, PATH_WORDS, READ_STARTS

_SUBQUERIES = frozenset({"EXISTS", "COUNT", "COLLECT"})
_AFTER_PATTERN = READ_STARTS | {"WHERE", "ORDER", "SKIP", "LIMIT", "UNION", "USING"}
_SOFT_PREFIXES = frozenset({"NOT", "DISTINCT"})


class Walk(Clauses):
    """Walks the tokens of one statement once; `run` returns or raises UnsafeCypherError."""

    def run(self) -> None:
        """Go to the end of the statement."""
        self._skip_prefixes()
        if not self._left():
            raise self._refuse("there is no statement", at=max(0, len(self._tokens) - 1))
        while self._left():
            token = self._peek()
            if token.kind == WORD:
                self._word(token)
            elif token.kind == SYMBOL:
                self._symbol(token)
            else:
                self._value(token)
        if len(self._frames) > 1:
            raise self._refuse(f"the bracket {self._top.opener!r} is never closed", at=len(self._tokens) - 1)
        self._must_be_complete(self._top)

    def _word(self, token: Token) -> None:
        state = self._top.state
        if state == LABEL:
            self._go(AFTER)
        elif state == OPERAND:
            self._operand_word(token)
        elif state == AFTER:
            self._word_after(token)
        else:
            self._clause(token.key)

    def _operand_word(self, token: Token) -> None:
        key, before = token.key, self._peek(-1)
        if self._is_prefix(key, before):
            self._go(OPERAND)
        elif key == "CASE" and not self._ends_operand(self._peek(1)):
            self._top.cases += 1
            self._go(OPERAND)
        elif key in _SUBQUERIES and self._peek(1).is_("{"):
            self._at += 1
            self._push(Frame("{", CLAUSE, query=True, pattern=key != "COLLECT"))
        elif self._top.opener == "{" and not self._top.query and self._is_key(before):
            self._go(OPERAND, tokens=2)
        elif not self._calls_function():
            self._refuse_hidden_clause(key, before)
            self._go(AFTER)

    def _is_prefix(self, key: str, before: Token) -> bool:
        """Whether the word stands before an operand without being one."""
        following = self._peek(1)
        if key in _SOFT_PREFIXES:
            return not self._ends_operand(following)
        if key == "WHEN":
            return before.key == "CASE" and self._top.cases > 0
        if key == "WHERE":
            return before.is_("(", "[", "|")
        if key in ("BOTH", "LEADING", "TRAILING"):
            return before.is_("(") and self._top.function == "trim"
        if key in ("TYPED", "NFC", "NFD", "NFKC", "NFKD"):
            return before.key in ("IS", "NOT") and following.kind == WORD
        return key in PATH_WORDS and self._in_path and self._continues_path(key, following)

    @property
    def _in_path(self) -> bool:
        """Whether SHORTEST, TRAIL and the like are words of a pattern here, and not functions."""
        return self._top.star or self._query.clause == "MATCH" or self._query.pattern

    def _continues_path(self, key: str, following: Token) -> bool:
        if following.kind == NUMBER or following.key in PATH_WORDS:
            return True
        return following.is_("(") and key not in ("ALL", "ANY") and key.lower() not in self._functions

    @staticmethod
    def _ends_operand(token: Token) -> bool:
        return token is END or token.is_(",", ")", "]", "}", ";", ".", "=", "<", ">")

    def _is_key(self, before: Token) -> bool:
        return self._peek(1).is_(":") and before.is_("{", ",")

    def _refuse_hidden_clause(self, key: str, before: Token) -> None:
        """Refuse a clause word as a name where the word before it might have been a name itself."""
        if key in FORBIDDEN and before.key in _SOFT_PREFIXES and self._peek(1).is_("[", "{"):
            raise self._refuse_word(key)

    def _word_after(self, token: Token) -> None:
        key, following = token.key, self._peek(1)
        if key in INFIX:
            self._go(OPERAND)
        elif key in ("STARTS", "ENDS") and following.key == "WITH":
            self._go(OPERAND, tokens=2)
        elif key == "NOT" and following.key in ("NULL", "IN"):
            self._go(OPERAND)
        elif key == "AS":
            self._alias()
        elif key in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
            self._go(AFTER)
        elif self._top.cases and key in ("WHEN", "THEN", "ELSE"):
            self._go(OPERAND)
        elif self._top.cases and key == "END":
            self._top.cases -= 1
            self._go(AFTER)
        elif key == "WHERE" or (key == "FROM" and self._top.function == "trim"):
            self._go(OPERAND)
        elif self._is_path_word_after(key):
            self._go(AFTER)
        else:
            self._clause(key)

    def _is_path_word_after(self, key: str) -> bool:
        counted = self._peek(-1).kind == NUMBER and key in ("PATH", "PATHS", "GROUP", "GROUPS")
        return counted or (self._top.star and key in PATH_WORDS)

    def _alias(self) -> None:
        self._at += 1
        if self._top.function == "cast":
            self._type()
        elif self._peek().kind not in (WORD, NAME):
            raise self._refuse("AS without a name")
        else:
            # Between clauses a name ends its item.
            self._go(NAMED if self._top.query else AFTER)

    def _value(self, token: Token) -> None:
        """Take a string, number, parameter or backticked name."""
        frame = self._top
        if frame.state == LABEL:
            self._go(AFTER)
        elif frame.state == OPERAND:
            if frame.opener == "{" and token.kind in (NAME, STRING) and self._is_key(self._peek(-1)):
                self._go(OPERAND, tokens=2)
                return
            if token.kind != NAME or not self._calls_function():
                self._go(AFTER)
        elif token.kind == NUMBER and frame.star and frame.state == AFTER:
            self._go(AFTER)
        else:
            raise self._refuse(f"a {token.kind} where an operator or a clause is due")
        if token.kind == NUMBER and self._peek().is_("."):
            raise self._refuse("a dot after a number")

    def _symbol(self, token: Token) -> None:
        text = token.text
        if text in CLOSER:
            self._open(text)
        elif text in ")]}":
            self._close(text)
        elif text == ";":
            self._semicolon()
        elif text == "+=":
            raise self._refuse("+= writes")
        elif text == "," and self._top.state == NAMED:
            self._go(OPERAND)
        elif self._top.state in (CLAUSE, CALLED, NAMED):
            raise self._refuse(f"{text!r} where a clause is due")
        elif self._top.state == LABEL:
            self._label_symbol(text)
        else:
            self._operator(text)

    def _label_symbol(self, text: str) -> None:
        if text in ("!", "$"):
            self._at += 1
        elif text == "%":  # any label
            self._go(AFTER)
        else:
            raise self._refuse(f"{text!r} where a name is due")

    def _operator(self, text: str) -> None:
        following = self._peek(1)
        if text == ":" and self._top.subscript:
            self._go(OPERAND)
        elif text in (":", "::"):
            self._go(LABEL)
        elif text == "!" and self._top.state == AFTER:
            self._exclamation(following)
        elif text == ".":
            self._dot(following)
        elif text == "*":
            self._star(following)
        elif text == "+" and self._is_quantifier(following):
            self._go(AFTER)
        else:
            self._go(OPERAND)

    def _exclamation(self, following: Token) -> None:
        """Take the factorial of the operand before it, or the first half of !=."""
        if following.is_("="):
            self._go(OPERAND, tokens=2)
        else:
            self._go(AFTER)

    def _dot(self, following: Token) -> None:
        if following.is_("*"):
            self._go(AFTER, tokens=2)
        elif following.kind not in (WORD, NAME):
            raise self._refuse("a dot without a property name")
        elif self._peek(2).is_("("):
            raise self._refuse("a call on a value")
        else:
            self._go(AFTER, tokens=2)

    def _star(self, following: Token) -> None:
        self._top.star = self._top.relationship
        infix = self._top.state == AFTER and not self._top.star and not self._is_quantifier(following)
        self._go(OPERAND if infix else AFTER)

    def _is_quantifier(self, following: Token) -> bool:
        """Whether + or * repeats the path pattern before it: ((a)-->(b))+ RETURN a."""
        return self._peek(-1).is_(")") and following.key in _AFTER_PATTERN

    def _open(self, text: str) -> None:
        frame = self._top
        if frame.state == CLAUSE and not (frame.pattern and text == "("):
            raise self._refuse(f"{text!r} where a clause is due")
        if frame.state in (CALLED, NAMED) or (frame.state == LABEL and text != "("):
            raise self._refuse(f"{text!r} where a clause or a name is due")
        if text == "(" and frame.state == AFTER and not self._may_precede_bracket(self._peek(-1)):
            raise self._refuse("'(' after something that is not a function")
        relationship = text == "[" and self._peek(-1).is_("-")
        subscript = text == "[" and frame.state == AFTER
        frame.state = AFTER
        self._push(Frame(text, OPERAND, relationship=relationship, subscript=subscript))

    def _may_precede_bracket(self, token: Token) -> bool:
        """Whether an opening bracket may follow an operand: only in path patterns; functions took theirs."""
        if self._top.star and (token.kind == NUMBER or token.is_("*", "..") or token.key in PATH_WORDS):
            return True
        return token.is_(")", "}") or (self._top.query and self._in_path and self._counts_paths(token))

    def _counts_paths(self, token: Token) -> bool:
        """Whether the token ends SHORTEST 2 or SHORTEST 2 PATHS, which stand before a pattern."""
        before = self._peek(-2)
        counts = token.kind == NUMBER and before.key in PATH_WORDS
        return counts or (token.key in PATH_WORDS and before.kind == NUMBER)

    def _semicolon(self) -> None:
        if len(self._frames) > 1 or self._left() > 1:
            raise self._refuse("more than one statement")
        self._at += 1
