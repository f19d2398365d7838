"""Tokenize texts, split long texts into windows, and check that a model supports a text's language."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING

from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError, ModelLoadError, UnsupportedLanguageError, require
from resift.text.languages import is_supported

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OVERLAP = 64  # tokens shared by adjacent windows, so that every sentence is complete in one of them
_PIECE_CHARACTERS = 20_000  # characters per tokenizer call: a few milliseconds of work

_ONE_TYPE = (0, 0, 0, 0, 0)
_WHITESPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Template:
    """Special tokens and token types around one text or a pair, taken from the model's tokenizer."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    @property
    def size(self) -> int:
        """Number of special tokens in a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def pair(self, query: list[int], document: list[int]) -> tuple[list[int], list[int]]:
        """Return the ids and token types of a query with a document, or with one window of a document."""
        parts = (self.before, query, self.between, document, self.after)
        ids = [token for part in parts for token in part]
        return ids, [token_type for part, token_type in zip(parts, self.types, strict=True) for _ in part]

    def single(self, text: list[int], *, marker: int | None = None) -> tuple[list[int], list[int]]:
        """Return the ids and token types of a single text, with an optional marker after the leading special tokens."""
        tokens = text if marker is None else [marker, *text]
        ids = [*self.before, *tokens, *self.after]
        return ids, [self.types[0]] * len(ids)


class TextTokenizer:
    """A model's tokenizer behind a lock, without padding or truncation.

    Special tokens spelled out in a text count as plain text. `plain` adds none, and `drop_unknown` omits unknown
    words.
    """

    def __init__(
        self, data: bytes, *, plain: bool = False, drop_unknown: bool = False, token_types: bool = True
    ) -> None:
        tokenizers = require("tokenizers", extra="local")
        _check_growth(data)
        try:
            with _panics_as_errors():
                self._tokenizer: Tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except Exception as exc:
            raise ModelLoadError(f"The tokenizer cannot be loaded: {exc}") from exc
        # Some tokenizer files pad every text to 512 tokens, so a short text would cost as much as a long one.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._lock = ForkSafeLock()
        # A byte-level tokenizer has no unknown token, because it can encode every text.
        candidates = (self._tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
        self._unknown: int | None = next((id for id in candidates if id is not None), None)
        self._drop_unknown = drop_unknown and self._unknown is not None
        with _panics_as_errors():
            self.template = Template((), (), (), _ONE_TYPE) if plain else _read_template(self._tokenizer)
        if not token_types:
            self.template = replace(self.template, types=_ONE_TYPE)
        # A document that contains the text "[SEP]" must not end at that point.
        self._tokenizer.encode_special_tokens = True

    def ids(self, text: str, *, give_up: Callable[[], bool] | None = None) -> list[int] | None:
        """Return the text's ids without special tokens, or None if `give_up` returned True between two pieces."""
        ids = self._encode(text, give_up)
        return [id for id in ids if id != self._unknown] if ids and self._drop_unknown else ids

    def prompt_template(self, parts: Iterable[str]) -> Template:
        """Return a template from the texts before, between and after a pair, with their special tokens."""
        with self._lock:
            self._tokenizer.encode_special_tokens = False
            before, between, after = (tuple(self._tokenizer.encode(p, add_special_tokens=False).ids) for p in parts)
            self._tokenizer.encode_special_tokens = True
        return Template(before, between, after, _ONE_TYPE)

    def _encode(self, text: str, give_up: Callable[[], bool] | None = None) -> list[int] | None:
        ids: list[int] = []
        for piece in split_pieces(replace_surrogates(text)):
            if give_up is not None and give_up():
                return None
            # Single encodes never start the tokenizer's own thread pool, which does not survive a fork.
            with self._lock, _panics_as_errors():
                ids += self._tokenizer.encode(piece, add_special_tokens=False).ids
        return ids

    def supports_language(self, text: str) -> bool:
        """Whether the model was trained on this language, estimated from the lengths of the word pieces."""
        return is_supported(text, lambda words: self._encode(words) or (), unknown=self._unknown)

    def count(self, text: str) -> int:
        """Return the number of tokens in a text."""
        return len(self.ids(text) or ())


_STEPS = ("normalizer", "pre_tokenizer", "post_processor")
_MAX_GROWTH = 256  # maximum factor by which a tokenizer's steps may lengthen a text; common tokenizers reach 40
_MAX_STEP_VALUES = 1_000  # maximum number of JSON values that describe the steps; common files have 50


def _check_growth(data: bytes) -> None:
    """Raise ModelFileError for steps that could lengthen a text until the library runs out of memory and aborts."""
    import msgspec

    try:
        file = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        steps = [msgspec.json.decode(file.get(name, b"null")) for name in _STEPS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelFileError(f"tokenizer.json is not readable JSON: {exc}") from exc
    growth, count, templates = 1, 0, 0
    while steps:
        step = steps.pop()
        count += 1
        if isinstance(step, dict):
            if "content" in step:  # Replace: the content may be inserted between all characters
                growth *= len(str(step["content"])) + 1
            if charsmap := step.get("precompiled_charsmap"):
                # Decoded from base64: the table's size in bytes, the table, then NUL-terminated replacements.
                try:
                    table = base64.b64decode(str(charsmap))
                except ValueError:
                    table = b""  # the library rejects it later
                replacements = table[4 + int.from_bytes(table[:4], "little") :]
                growth *= max(map(len, replacements.split(b"\0"))) + 1
            growth *= 2 if step.get("type") == "ByteLevel" or "trim_offsets" in step else 1
            templates += "single" in step
            steps += step.values()
        elif isinstance(step, list):
            steps += step
        if growth > _MAX_GROWTH or count + len(steps) > _MAX_STEP_VALUES or templates > 1:
            raise ModelFileError(
                "tokenizer.json has steps that would fill the memory with repeated text. "
                "Download the file again from the model's repository."
            )


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Convert a panic in the tokenizer library, which is a BaseException, into ModelLoadError."""
    try:
        yield
    except BaseException as exc:
        if type(exc).__name__ != "PanicException":
            raise
        raise ModelLoadError("The tokenizer failed on a text; its tokenizer.json is damaged.") from exc


_SAMPLED_TEXTS = 10
_MAX_UNSUPPORTED = 0.75  # share of the sampled texts; a mixed-language index contains some unsupported texts


def check_language(tokenizer: TextTokenizer, model: str, query: str, texts: Sequence[str]) -> None:
    """Raise UnsupportedLanguageError if the model does not support the query or most of the texts."""
    if not tokenizer.supports_language(query):
        subject = "this query"
    else:
        sample = texts[:_SAMPLED_TEXTS]
        needed = ceil((1 - _MAX_UNSUPPORTED) * len(sample))
        supported = (text for text in sample if tokenizer.supports_language(text))
        # Stop as soon as enough texts are supported, because the caller is waiting.
        if sum(1 for _ in islice(supported, needed)) == needed:
            return
        subject = "these texts"
    raise UnsupportedLanguageError(
        f"{model} does not support the language of {subject}, so the order was left unchanged. "
        'Use a multilingual model: docs/guides/rank/model-files.md, "Other languages".'
    )


def split_windows(tokens: int, budget: int, *, overlap: int = OVERLAP) -> list[tuple[int, int]]:
    """Return the (start, end) spans of windows of at most `budget` tokens that together cover all tokens.

    The last window ends with the text and is as wide as the others, because a short one would lack context.
    """
    if tokens <= budget:
        return [(0, tokens)]
    # The stride must be positive even with a small budget.
    stride = max(1, budget - min(overlap, budget // 4))
    starts = [*range(0, tokens - budget, stride), tokens - budget]
    return [(start, start + budget) for start in starts]


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def split_pieces(text: str) -> Iterator[str]:
    """Split a text at white space into pieces; joined together, they equal the text."""
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        # Tokens never span white space. Text without white space is split at a fixed length.
        match = _WHITESPACE.search(text, start + _PIECE_CHARACTERS, start + 2 * _PIECE_CHARACTERS)
        end = match.start() if match else start + _PIECE_CHARACTERS
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _read_template(tokenizer: Tokenizer) -> Template:
    # The template is read from an encoded example, because tokenizer files declare it in several formats.
    example = tokenizer.encode("a", "b")
    owners = list(example.sequence_ids)
    if 0 not in owners or 1 not in owners:
        raise ModelLoadError("The tokenizer does not accept pairs of texts.")
    first, second = owners.index(0), owners.index(1)
    last = len(owners) - 1 - owners[::-1].index(1)
    types = list(example.type_ids)
    between = next(i for i in range(first, len(owners)) if owners[i] != 0)
    return Template(
        before=tuple(example.ids[:first]),
        between=tuple(example.ids[between:second]),
        after=tuple(example.ids[last + 1 :]),
        types=(types[0], types[first], types[between] if between < second else types[first], types[second], types[-1]),
    )
