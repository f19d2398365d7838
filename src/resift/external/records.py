"""Select the text fields of a record and join them. Every entry point reads records with this module.

A record is a JSON object, a dict, or a row of CSV, Parquet or a DataFrame. Its text is its title, then every
other text field, with an empty line between them:

1. Fields with a known name, in the order of `TITLE_NAMES` and `BODY_NAMES`. Case is ignored.
2. Strings of at least 5 words under any other name, sorted by name. Lists of strings count as well.
3. If rules 1 and 2 find nothing but the title: the objects inside the record, such as Elasticsearch's
   `_source`, and then its `metadata`. Their fields have dotted names: `_source.body`.
4. If there is still nothing but the title: strings of at least 3 words.

`text_keys` and `fields` replace these rules: exactly those fields are read, in that order. With `fields`,
each part begins with the name of its field. Results of search systems are flattened first, so `title`
refers to `_source.title` in Elasticsearch and to `payload.title` in Qdrant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from resift.errors import InputError
from resift.external.systems import flatten_record
from resift.types import JsonMapping, JsonObject
from resift.validation import check_text, type_name

ID_KEYS = ("id", "_id", "doc_id")
TITLE_NAMES = (
    "title", "headline", "heading", "subject", "name", "question", "titel", "überschrift", "frage", "titre", "nom",
    "título", "titulo", "nombre", "pregunta", "titolo", "nome", "domanda",
)  # fmt: skip
BODY_NAMES = (
    "description", "abstract", "summary", "text", "content", "contents", "body", "page_content", "passage",
    "paragraph", "answer", "snippet", "excerpt", "caption", "message", "comment", "review", "note", "notes",
    "transcript", "full_text", "raw_text", "markdown", "chunk", "sentence", "article", "story", "post",
    "reply", "response", "details", "overview", "synopsis", "plot", "biography", "bio", "instructions",
    "lyrics", "beschreibung", "zusammenfassung", "inhalt", "antwort", "résumé", "texte", "contenu", "réponse",
    "descripción", "descripcion", "resumen", "texto", "contenido", "respuesta", "descrizione", "testo", "contenuto",
    "risposta", "descrição", "descricao", "resumo", "conteúdo", "conteudo",
)  # fmt: skip
JOIN = "\n\n"

_TITLES = frozenset(TITLE_NAMES)
_KNOWN = {name: rank for rank, name in enumerate((*TITLE_NAMES, *BODY_NAMES))}
HIT_KEYS = ("score", "source", "source_store")
"""Fields of a dict that describe how it was retrieved. They do not become metadata of the hit."""

_ID_OR_METADATA = frozenset({*ID_KEYS, "metadata"})
_NEVER_TEXT = frozenset({*_ID_OR_METADATA, *HIT_KEYS, "rank", "embedding", "embeddings", "vector", "vectors"})
_SIMPLE = frozenset({*_ID_OR_METADATA, *HIT_KEYS, "text"})
_LONG_WORDS, _SHORT_WORDS = 5, 3
_MIN_LONG = 10  # length of five words in a script without spaces
_MAX_DEPTH = 4
_WORD = re.compile(r"[^\W\d_]{2}")
# Characters of scripts without spaces. About two of them make a word.
_DENSE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ADDRESS = re.compile(r"[/\\@=]")

Parts = dict[str, str]  # dotted names of fields -> their texts


class RecordText(NamedTuple):
    """The text of one record and the names of its source fields, in order."""

    title: str = ""
    body: str = ""
    fields: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and body. If the record has one text field, exactly the text of that field."""
        if self.title and self.body:
            return f"{self.title.strip()}{JOIN}{self.body.strip()}"
        return self.title or self.body

    @property
    def name_only(self) -> bool:
        """Whether the text comes from a name or a heading only, without a title or a body."""
        return all(_leaf(field) in TITLE_NAMES[1:] for field in self.fields)


class LabeledFields(tuple[str, ...]):
    """Names of fields whose texts are joined, each prefixed with its name."""

    __slots__ = ()


def read_text(record: JsonMapping, keys: Sequence[str] | None = None) -> RecordText:
    """Return the text of a record, from the fields in `keys` or else by the rules of this module."""
    return read_flat_text(flatten_record(record), keys, original=record)


def read_flat_text(record: JsonMapping, keys: Sequence[str] | None, *, original: JsonMapping) -> RecordText:
    """Return the text of a flattened record. `keys` may also name fields of the original."""
    if keys is None:
        text = record.get("text")
        if isinstance(text, str) and text.strip() and record.keys() <= _SIMPLE:
            return RecordText(body=text, fields=("text",))
        parts = _text_fields(record, depth=0)
        if all(map(_is_title, parts)):
            parts |= _short_fields(record)
        return _join_parts(parts)
    parts = {}
    for key in keys:
        parts |= _named_field(original, key) or _named_field(record, key)
    if isinstance(keys, LabeledFields) and len(keys) > 1:
        labeled = [f"{_leaf(name).replace('_', ' ')}: {text.strip()}" for name, text in parts.items()]
        return RecordText(body=JOIN.join(labeled), fields=tuple(parts))
    return _join_parts(parts)


def check_fields(
    fields: Sequence[str] | Mapping[str, float] | str | None, text_keys: Sequence[str] | str | None = None
) -> tuple[str, ...] | None:
    """Return the names of the fields to read; those from `fields` are labeled, and sorted by weight without zeros."""
    if fields is None:
        return check_text_keys(text_keys)
    if text_keys is not None:
        raise InputError("Pass fields or text_keys, not both; fields prefixes each text with the name of its field.")
    if isinstance(fields, Mapping):
        for name, weight in fields.items():
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
                raise InputError(f"fields has the weight {weight!r} for {name!r}; pass 0 or a positive number.")
        weights: dict[str, float] = {name: weight for name, weight in fields.items() if weight}
        fields = sorted(weights, key=weights.__getitem__, reverse=True)  # ties keep their order
    return LabeledFields(check_text_keys(fields, "fields") or ())


def check_text_keys(keys: Sequence[str] | str | None, argument: str = "text_keys") -> tuple[str, ...] | None:
    """Return the names of the fields to read. A string may contain several names, separated by commas."""
    if keys is None or isinstance(keys, LabeledFields):
        return keys
    if not isinstance(keys, (str, Iterable)) or isinstance(keys, (bytes, Mapping)):
        raise InputError(f"{argument} is {type_name(keys)}; pass field names, such as ['title', 'body'].")
    groups = [keys] if isinstance(keys, str) else [check_text(key, argument) for key in keys]
    names = tuple(name.strip() for group in groups for name in group.split(",") if name.strip())
    if not names:
        raise InputError(f"{argument} is empty; pass field names, such as ['title', 'body'], or omit it.")
    return names


def read_metadata(record: JsonMapping, text: RecordText, *, without: Collection[str] = ()) -> JsonObject:
    """Return the metadata of a record: its title, and all fields except ids, text fields and `without`."""
    nested = record.get("metadata")
    metadata = dict(nested) if isinstance(nested, Mapping) else {}
    body_fields = _body_fields(text.fields)
    for key, value in record.items():
        if key not in _ID_OR_METADATA and key not in without and not (key in body_fields and isinstance(value, str)):
            metadata[key] = value
    return metadata


@lru_cache(maxsize=1024)
def _body_fields(fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in fields if name.casefold() not in _TITLES)


def text_from(fields: Iterable[str]) -> str:
    """Return "text from: title, body" for messages and traces, or "" without fields."""
    names = list(dict.fromkeys(fields))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"text from: {', '.join(names[:8])}{more}" if names else ""


def no_text(records: Iterable[JsonMapping], keys: Sequence[str] | None, option: str) -> str:
    """Explain why records have no text: the expected fields, the existing fields, and the option to set."""
    field_names = ", ".join(dict.fromkeys(name for record in records for name in _field_names(record)))[:300] or "none"
    problem = f"looked for {', '.join(keys)}" if keys else "no field has a known name or several words"
    return f"{problem}; available fields: {field_names}. Choose the text fields with {option}."


def _field_names(record: JsonMapping, prefix: str = "") -> Iterator[str]:
    """Yield all field names, dotted if nested. The type of a value that is not a string follows in parentheses."""
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _field_names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}" if isinstance(value, str) else f"{prefix}{key} ({type(value).__name__})"


def _join_parts(parts: Parts) -> RecordText:
    if not parts:
        return RecordText()
    names, texts = tuple(parts), list(parts.values())
    title = texts.pop(0) if len(texts) > 1 and _is_title(names[0]) else ""
    body = texts[0]
    if len(texts) > 1:
        bodies = dict.fromkeys(text.strip() for text in texts)  # a text that occurs under two names is used once
        body = JOIN.join(bodies) if len(bodies) > 1 else body
    return RecordText(title, body, names)


@lru_cache(maxsize=1024)
def _sort_keys(keys: tuple[object, ...]) -> tuple[list[str], list[str]]:
    """Return the known keys in their fixed order, and the other keys that may hold text."""
    names = {key: key.strip().casefold() for key in keys if isinstance(key, str)}
    known = sorted((_KNOWN[name], key) for key, name in names.items() if name in _KNOWN)
    others = [key for key, name in names.items() if name not in _KNOWN and name not in _NEVER_TEXT]
    return [key for _, key in known], sorted(key for key in others if key.lstrip()[:1] not in ("_", "@"))


def _text_fields(record: JsonMapping, *, depth: int) -> Parts:
    known, others = _sort_keys(tuple(record))  # cached, because the records of a list share their keys
    parts: Parts = {}
    for key in known:
        value = record[key]
        text = value if type(value) is str else _value_text(value, depth)
        if text and not text.isspace():
            parts[key] = text
    for key in others:
        value = record[key]
        if isinstance(value, (str, list, tuple)) and (text := _long_text(value, depth)):
            parts[key] = text
    if depth < _MAX_DEPTH and (not parts or _is_title(next(reversed(parts)))):
        parts |= _nested_fields(record, depth=depth, titles=not parts)
    return parts


def _long_text(value: str | Sequence[object], depth: int) -> str:
    """Return a long string, or the text of a list that contains one, such as a list of paragraphs."""
    if isinstance(value, str):
        return value if len(value) >= _MIN_LONG and _has_words(value, _LONG_WORDS) else ""
    text = _value_text(value, depth) if value and isinstance(value[0], (str, Mapping)) else ""
    return text if any(_has_words(part, _LONG_WORDS) for part in text.split(JOIN)) else ""


def _nested_fields(record: JsonMapping, *, depth: int, titles: bool) -> Parts:
    """Return the text fields of nested objects. Objects with nothing but a title count only if `titles` is set."""
    objects = {key: value for key, value in record.items() if isinstance(value, Mapping)}
    for names in (sorted(key for key in objects if isinstance(key, str) and key != "metadata"), ["metadata"]):
        parts: Parts = {}
        for key in names:
            value = objects.get(key)
            hidden = key.startswith(("_", "@")) and key != "_source"
            if value is not None and not hidden and key.casefold() not in _KNOWN:
                inner = _text_fields(value, depth=depth + 1)
                if titles or not all(map(_is_title, inner)):
                    parts |= {f"{key}.{name}": text for name, text in inner.items()}
        if parts:
            return parts
    return {}


def _short_fields(record: JsonMapping) -> Parts:
    strings = {key: value for key, value in record.items() if isinstance(key, str) and isinstance(value, str)}
    return {
        key: value
        for key, value in sorted(strings.items())
        if key.casefold() not in _NEVER_TEXT and key[:1] not in ("_", "@") and _has_words(value, _SHORT_WORDS)
    }


def _named_field(record: JsonMapping, key: str) -> Parts:
    for name in (key, f"metadata.{key}"):
        value = lookup(record, name)
        text = str(value) if isinstance(value, (int, float)) else _value_text(value, 0)
        if text.strip():
            return {name: text}
    return {}


def lookup(value: object, key: str) -> object:
    """Return the value under a dotted name. For a list of objects, return a list of values."""
    if isinstance(value, (list, tuple)):
        return [lookup(item, key) for item in value]
    if not isinstance(value, Mapping):
        return None
    if key in value:
        return value[key]
    # A key may itself contain dots, so the longest existing prefix wins.
    pieces = key.split(".")
    for end in range(len(pieces) - 1, 0, -1):
        first = ".".join(pieces[:end])
        if first in value:
            return lookup(value[first], ".".join(pieces[end:]))
    return None


def _value_text(value: object, depth: int) -> str:
    """Return a string, the strings or `{type, text}` parts of a list, or the text of an object."""
    if isinstance(value, str):
        return value
    if value is None or depth >= _MAX_DEPTH:
        return ""
    if isinstance(value, (list, tuple)):
        return JOIN.join(text for item in value if (text := _value_text(item, depth + 1).strip()))
    return _join_parts(_text_fields(value, depth=depth + 1)).text if isinstance(value, Mapping) else ""


def _has_words(text: str, min_words: int) -> bool:
    tokens = (token for token in text[:2000].split() if not _ADDRESS.search(token))
    counts = accumulate(len(_DENSE.findall(token)) // 2 or bool(_WORD.search(token)) for token in tokens)
    return any(count >= min_words for count in counts)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2].strip().casefold()


@lru_cache(maxsize=4096)
def _is_title(name: str) -> bool:
    return _leaf(name) in _TITLES
