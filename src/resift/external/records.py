"""Which fields of a record are its text, and how they are joined. Every entry point reads records here.

A record is a JSON object, a dict, or a row of CSV, Parquet or a DataFrame. Its text is its title, then every
other text field, with an empty line between them:

1. Fields with a known name, in the order of `TITLE_NAMES` and `BODY_NAMES`, whatever the case of the name.
2. Strings of at least 5 words under any other name, in the order of their names.
3. Without a field of 1 or 2 beyond the title, the objects inside the record, such as Elasticsearch's
   `_source`, and then its `metadata`. Fields in them are named with dots: `_source.body`.
4. Without any field beyond the title, strings of at least 3 words.

`text_keys` replaces these rules: exactly those fields are read, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from resift.errors import InputError
from resift.types import JsonMapping, JsonObject
from resift.validation import check_text

ID_KEYS = ("id", "_id", "doc_id")
TITLE_NAMES = ("title", "headline", "heading", "subject", "name", "question")
BODY_NAMES = (
    "description", "abstract", "summary", "text", "content", "contents", "body", "page_content", "passage",
    "paragraph", "answer", "snippet", "excerpt", "caption", "message", "comment", "review", "note", "notes",
    "transcript", "full_text", "raw_text", "markdown", "chunk", "sentence", "article", "story", "post",
    "reply", "response", "details", "overview", "synopsis", "plot", "biography", "bio", "instructions",
    "lyrics",
)  # fmt: skip
JOIN = "\n\n"

_KNOWN = {name: rank for rank, name in enumerate((*TITLE_NAMES, *BODY_NAMES))}
HIT_KEYS = ("score", "source", "source_store")
"""Fields of a dict that say how it was found; they are not metadata of a hit."""

_ID_OR_METADATA = frozenset({*ID_KEYS, "metadata"})
_NEVER_TEXT = frozenset({*_ID_OR_METADATA, *HIT_KEYS, "rank", "embedding", "embeddings", "vector", "vectors"})
_SIMPLE = frozenset({*_ID_OR_METADATA, *HIT_KEYS, "text"})
_LONG_WORDS, _SHORT_WORDS = 5, 3
_MAX_DEPTH = 4
_WORD = re.compile(r"[^\W\d_]{2}")
# Scripts without spaces: about two characters a word.
_DENSE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ADDRESS = re.compile(r"[/\\@=]")

Part = tuple[str, str]
"""The dotted name of a field, and its text."""


@dataclass(frozen=True, slots=True)
class RecordText:
    """The text of one record, and the names of the fields it was read from, in order."""

    title: str = ""
    body: str = ""
    fields: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and body; a record with one text field has exactly the text of that field."""
        if self.title and self.body:
            return f"{self.title.strip()}{JOIN}{self.body.strip()}"
        return self.title or self.body

    @property
    def name_only(self) -> bool:
        """Whether it was read from a name or a heading alone, without a title or a body."""
        return all(_leaf(field) in TITLE_NAMES[1:] for field in self.fields)


def read_text(record: JsonMapping, keys: Sequence[str] | None = None) -> RecordText:
    """Return the text of a record: of the fields named by `keys`, or by the rules of this module."""
    if keys is None:
        text = record.get("text")
        if isinstance(text, str) and text.strip() and record.keys() <= _SIMPLE:
            return RecordText(body=text, fields=("text",))
        parts = _text_fields(record, depth=0)
        if all(_leaf(name) in TITLE_NAMES for name, _ in parts):
            titles = {name for name, _ in parts}
            parts += [part for part in _short_fields(record) if part[0] not in titles]
        return _joined(parts)
    return _joined([part for key in keys for part in _named_field(record, key)])


def check_text_keys(keys: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Return the names of the fields to read; one string may name several, separated by commas."""
    if keys is None:
        return None
    if not isinstance(keys, (str, Iterable)) or isinstance(keys, (bytes, Mapping)):
        raise InputError(
            f"text_keys is a {type(keys).__name__}; pass names of fields, such as ['title', 'body']."
        )
    given = [keys] if isinstance(keys, str) else [check_text(key, "text_keys") for key in keys]
    names = tuple(name.strip() for one in given for name in one.split(",") if name.strip())
    if not names:
        raise InputError(
            "text_keys is empty; pass names of fields, such as ['title', 'body'], or leave it out."
        )
    return names


def read_metadata(record: JsonMapping, text: RecordText, *, without: Collection[str] = ()) -> JsonObject:
    """Return the title of a record and all that is neither its id nor in its text, nor in `without`."""
    nested = record.get("metadata")
    read = {name for name in text.fields if name.casefold() not in TITLE_NAMES}
    return {
        **(nested if isinstance(nested, Mapping) else {}),
        **{
            key: value
            for key, value in record.items()
            if key not in _ID_OR_METADATA
            and key not in without
            and not (key in read and isinstance(value, str))
        },
    }


def text_from(fields: Iterable[str]) -> str:
    """Return "text from: title, body" for messages and traces; "" where there are no fields to name."""
    names = list(dict.fromkeys(fields))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"text from: {', '.join(names[:8])}{more}" if names else ""


def no_text(records: Iterable[JsonMapping], keys: Sequence[str] | None, option: str) -> str:
    """Return why these records have no text: what was looked for, what they have, and what to pass."""
    have: dict[str, None] = {}
    for record in records:
        for key, value in record.items():
            have[str(key) if isinstance(value, str) else f"{key} ({type(value).__name__})"] = None
    shown = ", ".join(have)[:300] or "none"
    looked = f"looked for {', '.join(keys)}" if keys else "no field has a known name or several words"
    return f"{looked}; the fields are: {shown}. Name those to read with {option}."


@runtime_checkable
class Table(Protocol):
    """A DataFrame of pandas or polars, or a pyarrow Table."""

    @property
    def columns(self) -> Any:
        """The columns, or their names."""
        ...


def table_rows(table: Table) -> list[JsonObject]:
    """Return the rows of a DataFrame or an Arrow table as records, without the cells that are missing."""
    kind = type(table).__name__
    rows: list[Mapping[object, object]]
    if hasattr(table, "to_pylist"):
        rows = table.to_pylist()
    elif hasattr(table, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(table, "iterrows") and not hasattr(table, "compute"):
        frame: Any = table
        if not {*frame.index.names}.isdisjoint(ID_KEYS):
            frame = frame.reset_index()
        if not frame.columns.is_unique:
            raise InputError(f"Two columns of the {kind} have the same name; rename one.")
        rows = frame.to_dict("records")
    else:
        raise InputError(f"A {kind} cannot be read by rows; pass a DataFrame in memory or a list of dicts.")
    return [
        {str(name): _plain_cell(cell) for name, cell in row.items() if not _is_missing(cell)} for row in rows
    ]


def list_documents(value: object, name: str) -> list[Any]:
    """Return the documents of a list, an iterator or a table; refuses what is no list of documents."""
    if type(value) is list or type(value) is tuple:
        return list(value)  # nearly always, and the checks below take longer than fusing short lists
    kind = type(value).__name__
    if isinstance(value, Mapping) and is_columns(value):
        columns = ", ".join(map(str, value))
        raise InputError(
            f"{name} is one dict of columns ({columns}); pass one dict for each document: "
            "[dict(zip(columns, row)) for row in zip(*columns.values())]."
        )
    if isinstance(value, Table) and not isinstance(value, (type, Mapping, Sequence)):
        return table_rows(value)
    # A row of a database or a named tuple is one document; a pandas Series has keys too, and one dimension.
    record = (hasattr(value, "keys") and not hasattr(value, "ndim")) or hasattr(value, "_fields")
    if record or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise InputError(f"{name} is one {kind}; pass a list of strings, dicts or Hits.")
    if value is None or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        shown = "None" if value is None else f"a {kind}"
        raise InputError(f"{name} is {shown}; pass a list of strings, dicts or Hits.")
    return list(value)


def is_columns(record: Mapping[Any, Any]) -> bool:
    """Whether a dict holds one list per field, all of the same length, rather than one record."""
    values = list(record.values())
    sized = all(hasattr(one, "__len__") and not isinstance(one, (str, bytes, Mapping)) for one in values)
    return len(values) > 1 and sized and len({len(one) for one in values}) == 1


def _joined(parts: Sequence[Part]) -> RecordText:
    if not parts:
        return RecordText()
    title = ""
    rest = list(parts)
    if len(parts) > 1 and _leaf(parts[0][0]) in TITLE_NAMES:
        title, rest = parts[0][1], list(parts[1:])
    bodies: dict[str, str] = {}
    for _, text in rest:
        bodies.setdefault(text.strip(), text)  # the same text under two names is one text
    body = rest[0][1] if len(bodies) == 1 else JOIN.join(bodies)
    return RecordText(title, body, tuple(name for name, _ in parts))


def _text_fields(record: JsonMapping, *, depth: int) -> list[Part]:
    ranked: list[tuple[int, str, str]] = []
    for key, value in record.items():
        if value is None or not isinstance(key, str):
            continue
        name = key.strip().casefold()
        if name in _NEVER_TEXT:
            continue
        rank = _KNOWN.get(name)
        if rank is not None:
            text = _value_text(value, depth)
            if text.strip():
                ranked.append((rank, key, text))
        elif isinstance(value, str) and name[:1] not in ("_", "@") and _has_words(value, _LONG_WORDS):
            ranked.append((len(_KNOWN), key, value))
    parts = [(key, text) for _, key, text in sorted(ranked)]
    if all(rank < len(TITLE_NAMES) for rank, _, _ in ranked) and depth < _MAX_DEPTH:
        parts += _nested_fields(record, depth=depth, titles=not parts)
    return parts


def _nested_fields(record: JsonMapping, *, depth: int, titles: bool) -> list[Part]:
    """Return the text fields of the objects in a record; of those that have a title only, where `titles`."""
    strings = sorted(key for key in record if isinstance(key, str) and key != "metadata")
    for names in (strings, ["metadata"]):
        found: list[Part] = []
        for key in names:
            value = record.get(key)
            hidden = key.startswith(("_", "@")) and key != "_source"
            if isinstance(value, Mapping) and not hidden and key.casefold() not in _KNOWN:
                inner = _text_fields(value, depth=depth + 1)
                if titles or any(_leaf(name) not in TITLE_NAMES for name, _ in inner):
                    found += [(f"{key}.{name}", text) for name, text in inner]
        if found:
            return found
    return []


def _short_fields(record: JsonMapping) -> list[Part]:
    strings = {key: value for key, value in record.items() if isinstance(key, str) and isinstance(value, str)}
    return [
        (key, value)
        for key, value in sorted(strings.items())
        if key.casefold() not in _NEVER_TEXT and key[:1] not in ("_", "@") and _has_words(value, _SHORT_WORDS)
    ]


def _named_field(record: JsonMapping, key: str) -> Iterator[Part]:
    for name, value in ((key, _lookup(record, key)), (f"metadata.{key}", _lookup(record, f"metadata.{key}"))):
        text = str(value) if isinstance(value, (int, float)) else _value_text(value, 0)
        if text.strip():
            yield name, text
            return


def _lookup(value: Any, key: str) -> Any:
    """Return the value under a dotted name, of each object where there is a list of them."""
    if isinstance(value, (list, tuple)):
        return [_lookup(one, key) for one in value]
    if not isinstance(value, Mapping):
        return None
    if key in value:
        return value[key]
    # A name may itself have dots: the longest part that is there counts.
    pieces = key.split(".")
    for end in range(len(pieces) - 1, 0, -1):
        first = ".".join(pieces[:end])
        if first in value:
            return _lookup(value[first], ".".join(pieces[end:]))
    return None


def _value_text(value: Any, depth: int) -> str:
    """Return a string, the strings or `{type, text}` parts of a list, or the text of an object."""
    if isinstance(value, str):
        return value
    if depth >= _MAX_DEPTH:
        return ""
    if isinstance(value, (list, tuple)):
        return JOIN.join(text for one in value if (text := _value_text(one, depth + 1).strip()))
    return _joined(_text_fields(value, depth=depth + 1)).text if isinstance(value, Mapping) else ""


def _has_words(text: str, min_words: int) -> bool:
    count = 0
    for token in text[:2000].split():
        if not _ADDRESS.search(token):
            count += len(_DENSE.findall(token)) // 2 or bool(_WORD.search(token))
            if count >= min_words:
                return True
    return False


def _leaf(name: str) -> str:
    return name.rpartition(".")[2].strip().casefold()


def _is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, NaT or pandas.NA, none of which equals itself."""
    if cell is None:
        return True
    if isinstance(cell, (str, Mapping, list)) or hasattr(cell, "__len__"):
        return False
    try:
        return bool(cell != cell)  # noqa: PLR0124 - true of these alone
    except TypeError:  # pandas.NA has no truth value
        return True


def _plain_cell(cell: Any) -> Any:
    """Return a cell as JSON has it: numbers of numpy as numbers, dates as ISO 8601, arrays as lists."""
    if cell is None or isinstance(cell, (str, int, float, bool, list, dict)):
        return cell
    for method in ("isoformat", "tolist"):
        if hasattr(cell, method):
            return getattr(cell, method)()
    return str(cell)
