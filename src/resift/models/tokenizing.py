"""Text to token ids: one guarded tokenizer, no padding, no truncation, text of any size and script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from resift._internal.forking import ForkSafeLock
from resift.errors import ModelLoadError, require
from resift.text.familiarity import is_familiar

_PIECE = 20_000
"""Characters given to the tokenizer at once: a few milliseconds of work."""

_BREAK = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Template:
    """Ids and token types that the model wants around its texts, read from its own tokenizer."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    @property
    def size(self) -> int:
        """How many special tokens a pair has."""
        return len(self.before) + len(self.between) + len(self.after)

    def pair(self, query: list[int], document: list[int]) -> tuple[list[int], list[int]]:
        """Return ids and token types of one query and one document (or one window of it)."""
        parts = (self.before, query, self.between, document, self.after)
        ids = [token for part in parts for token in part]
        types = [kind for part, kind in zip(parts, self.types, strict=True) for _ in part]
        return ids, types

    def single(self, text: list[int], *, marker: int | None = None) -> tuple[list[int], list[int]]:
        """Return ids and token types of one text alone, with a marker token after the opening one."""
        marked = text if marker is None else [marker, *text]
        ids = [*self.before, *marked, *self.after]
        return ids, [self.types[0]] * len(ids)


class TextTokenizer:
    """A model's tokenizer behind a lock. Special tokens written out in a text count as plain text."""

    def __init__(self, data: bytes) -> None:
        tokenizers = require("tokenizers", extra="local")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except Exception as exc:
            raise ModelLoadError(f"The tokenizer does not load: {exc}") from exc
        # Files made for fixed shapes pad every text to 512 tokens and so to the price of 512.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._lock = ForkSafeLock()
        # The two ways to write it; a tokenizer of bytes has neither, for it knows every text.
        named = (self._tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
        self._unknown: int | None = next((id for id in named if id is not None), None)
        self.template = _template_of(self._tokenizer)
        # A document that spells out "[SEP]" must not end itself.
        self._tokenizer.encode_special_tokens = True

    def ids(self, text: str, *, give_up: Callable[[], bool] | None = None) -> list[int] | None:
        """Return the text's ids without special tokens; None when `give_up` said so between two pieces."""
        ids: list[int] = []
        for piece in pieces(printable(text)):
            if give_up is not None and give_up():
                return None
            # Single encodes never start the tokenizer's own thread pool, which does not survive a fork.
            with self._lock:
                ids += self._tokenizer.encode(piece, add_special_tokens=False).ids
        return ids

    def knows(self, text: str) -> bool:
        """Say whether the model was made for texts like this, told by how its words fall into pieces."""
        return is_familiar(text, lambda words: self.ids(words) or (), unknown=self._unknown)

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self.ids(text) or ())


def printable(text: str) -> str:
    """Return the text with lone surrogates replaced, which no UTF-8 encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def pieces(text: str) -> Iterator[str]:
    """Cut a text at white space into pieces that together are the text."""
    start = 0
    while len(text) - start > _PIECE:
        # At white space, where no model's tokens span; a text without any is cut anywhere.
        found = _BREAK.search(text, start + _PIECE, start + 2 * _PIECE)
        end = found.start() if found else start + _PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _template_of(tokenizer: object) -> Template:
    # Read off an example: templates of tokenizer files come in several forms.
    made = tokenizer.encode("a", "b")  # type: ignore[attr-defined]
    owners = list(made.sequence_ids)
    if 0 not in owners or 1 not in owners:
        raise ModelLoadError("The tokenizer does not take pairs of texts.")
    first, second = owners.index(0), owners.index(1)
    last = len(owners) - 1 - owners[::-1].index(1)
    kinds = list(made.type_ids)
    between = next(at for at in range(first, len(owners)) if owners[at] != 0)
    return Template(
        before=tuple(made.ids[:first]),
        between=tuple(made.ids[between:second]),
        after=tuple(made.ids[last + 1 :]),
        types=(
            kinds[0],
            kinds[first],
            kinds[between] if between < second else kinds[first],
            kinds[second],
            kinds[-1],
        ),
    )
