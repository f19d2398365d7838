"""Hit: one candidate. All copies of hits are made in this module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeAlias

from resift.errors import InvalidHitError
from resift.validation import convert

# Deliberately not a union of types: each reader checks the values itself.
JsonValue: TypeAlias = Any  # a value that `json.loads` returns
JsonObject: TypeAlias = dict[str, JsonValue]  # an object that `json.loads` returns or `json.dumps` accepts
JsonMapping: TypeAlias = Mapping[str, JsonValue]  # a JSON object that is only read
Metadata: TypeAlias = JsonMapping  # properties of a document in addition to its text; users choose the keys
Where: TypeAlias = JsonMapping  # conditions on metadata: key -> value, list of values, or operator -> value


class StoredContent(Protocol):
    """Texts and metadata of a list of documents, which a store loads on first use."""

    def load(self, ids: Sequence[str]) -> Mapping[str, tuple[str, Metadata]]:
        """Return a mapping from id to text and metadata, for at least these documents."""

    def is_read(self, ids: Iterable[str]) -> bool:
        """Return whether these documents can be loaded without waiting for a disk or a network."""


class _HitSlots:
    """The slots of a hit, writable until the class is set to `Hit`; `_original` is not compared, stored or pickled."""

    __slots__ = ("_original", "id", "metadata", "score", "source", "text")
    _original: object


@dataclass(frozen=True, slots=True, init=False)
class Hit(_HitSlots):
    """One candidate: a document with the score from the last stage and the store it came from.

    An unscored hit has the score None. `doc_id` and `source_store` are aliases of `id` and `source`.
    Raises InvalidHitError unless the id is a non-empty string and the score is a finite number or None.
    """

    id: str
    text: str = ""
    score: float | None = None
    source: str = ""
    metadata: Metadata = field(default_factory=dict)

    # Written by hand to support the two aliases, and because a generated one takes 50 % longer.
    def __init__(
        self,
        id: str = "",
        text: str = "",
        score: float | None = None,
        source: str = "",
        metadata: Metadata | None = None,
        *,
        doc_id: str = "",
        source_store: str = "",
    ) -> None:
        id = _same_value(id, doc_id, "id", "doc_id") if doc_id else id
        if not isinstance(id, str) or not id:
            raise InvalidHitError(f"Hit id is {id!r}; it must be a non-empty string.")
        if not isinstance(text, str):
            raise InvalidHitError(f"Hit {id!r} has text of type {type(text).__name__}; it must be a string.")
        if not isinstance(source, str) or not (metadata is None or isinstance(metadata, Mapping)):
            raise InvalidHitError(f"Hit {id!r} needs a string as its source and a dict as its metadata.")
        if score is not None and (type(score) is not float or not math.isfinite(score)):
            score = to_finite_float(score, of=f"Hit {id!r}")
        _set_id(self, id)
        _set_text(self, text)
        _set_score(self, score)
        _set_source(self, _same_value(source, source_store, "source", "source_store") if source_store else source)
        _set_metadata(self, {} if metadata is None else metadata)
        _set_original(self, None)

    def __repr__(self) -> str:
        # Without text and metadata: this appears in logs and tracebacks, which must not contain documents.
        return f"<Hit {self.id!r} score={self.score} source={self.source!r} text of {len(self.text)} characters>"

    def __hash__(self) -> int:
        return hash((self.id, self.score, self.source))

    @property
    def doc_id(self) -> str:
        """The id, under the name used in citations."""
        return self.id

    @property
    def source_store(self) -> str:
        """The source, under the name used in citations."""
        return self.source

    @property
    def original(self) -> Any:
        """The object that this hit was created from, such as a row or a search result, or None."""
        return getattr(self, "_original", None)  # an unpickled subclass does not have the attribute

    @property
    def rerank_provider(self) -> str | None:
        """The provider of the rerank score, or None."""
        provider = self.metadata.get("rerank_provider")
        return None if provider is None else str(provider)

    def with_metadata(self, **extra: object) -> Hit:
        """Return a copy with these metadata entries added."""
        metadata = {**self.metadata, **extra}
        if type(self) is Hit:
            copy = Hit(self.id, self.text, self.score, self.source, metadata)
        else:
            copy = replace(self, metadata=metadata)
        return set_original(copy, self.original)

    def to_dict(self) -> JsonObject:
        """Return plain data; `from_dict` turns it back into an equal hit."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**data, "metadata": dict(self.metadata)}

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Hit:
        """Return the hit for the output of `to_dict`; raises InputError for anything else."""
        from resift.types.stored import HitData

        stored = convert(data, HitData, name="a hit")
        # Subclasses check their additional fields themselves.
        values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        return cls(**{name: getattr(stored, name, value) for name, value in values.items()})

    @classmethod
    def from_citation(cls, citation: tuple[str, float | None, str, Metadata], *, text: str = "") -> Hit:
        """Return the hit for a citation: (doc_id, score, source_store, metadata)."""
        doc_id, score, source, metadata = citation
        return cls(doc_id, text, score, source, dict(metadata))


# A frozen class rejects plain assignment. These are the setters of the slots, which object.__setattr__ would call.
_slots = vars(_HitSlots)
_set_id, _set_text, _set_score, _set_source, _set_metadata = (_slots[each.name].__set__ for each in fields(Hit))
_set_original = _slots["_original"].__set__
_get_text, _get_metadata = _slots["text"].__get__, _slots["metadata"].__get__
# Direct access to the slots behind the properties below: in a loop, it takes 40 % of the time of `__get__`.
Hit._text, Hit._metadata = _slots["text"], _slots["metadata"]  # type: ignore[attr-defined]


def set_original(hit: Hit, original: object) -> Hit:
    """Set the object that a new hit was created from, and return the hit."""
    _set_original(hit, original)
    return hit


def _restore(hit: Hit, state: Sequence[Any]) -> None:
    for set_field, value in zip((_set_id, _set_text, _set_score, _set_source, _set_metadata), state, strict=True):
        set_field(hit, value)
    _set_original(hit, None)


Hit.__setstate__ = _restore  # type: ignore[attr-defined]  # for pickle and copy


def _read_text(hit: Hit) -> str:
    content: str | StoredContent = _get_text(hit)
    if isinstance(content, str):
        return content
    text, metadata = content.load((hit.id,))[hit.id]
    _set_metadata(hit, metadata)  # before the text, because other threads take the text as the sign that both are set
    _set_text(hit, text)
    return text


def _read_metadata(hit: Hit) -> Metadata:
    metadata: Metadata | None = _get_metadata(hit)
    if metadata is None:
        _read_text(hit)
        metadata = _get_metadata(hit)
    return metadata


# Properties in front of the slots. A __getattr__ would slow down every attribute, not only these two.
Hit.text = property(_read_text, _set_text)  # type: ignore[assignment, misc]
Hit.metadata = property(_read_metadata, _set_metadata)  # type: ignore[assignment, misc]


def lazy_hits(ids: Sequence[str], scores: Iterable[float | None], content: StoredContent, *, source: str) -> list[Hit]:
    """Return hits that load text and metadata from `content` on first use; ids and scores are not checked."""
    hits: list[Any] = [_HitSlots() for _ in ids]
    for hit, id, score in zip(hits, ids, scores, strict=True):
        hit.id = id
        hit.text = content
        hit.score = score
        hit.source = source
        hit.metadata = hit._original = None
        hit.__class__ = Hit
    return hits


async def load_hits(hits: Iterable[Hit]) -> None:
    """Load the texts and metadata of these hits, those of one list together; errors of the store are raised."""
    by_content: dict[int, tuple[StoredContent, list[Hit]]] = {}
    for hit in hits:
        content = hit._text  # type: ignore[attr-defined]
        if not isinstance(content, str):
            by_content.setdefault(id(content), (content, []))[1].append(hit)
    for content, unread in by_content.values():
        ids = [hit.id for hit in unread]
        if not content.is_read(ids):
            import asyncio  # at the top of the module, it would double the time of the first `fuse`

            # In a thread, so that a slow disk does not block other searches.
            await asyncio.to_thread(content.load, ids)
        for hit, (text, metadata) in zip(unread, map(content.load(ids).__getitem__, ids), strict=True):
            _set_metadata(hit, metadata)
            _set_text(hit, text)


def load_now(hits: Iterable[Hit]) -> None:
    """Load the texts and metadata of these hits in this thread."""
    for hit in hits:
        _read_text(hit)


def same_text(hit: Hit, other: Hit) -> bool:
    """Whether two hits have the same text; copies of a hit are compared without loading the text."""
    # Hits of one list that are not loaded yet share a content object, which has one text per id.
    return (_get_text(hit) is _get_text(other) and hit.id == other.id) or hit.text == other.text


def with_scores(hits: Iterable[Hit], scores: Iterable[float | None], *, provider: str | None = None) -> list[Hit]:
    """Return copies with these scores, finite or None; a provider is added to the metadata of each scored hit."""
    hits, scores = [*hits], [*scores]
    if len(scores) != len(hits):
        raise ValueError(f"{len(scores)} scores for {len(hits)} hits")
    if set(map(type, hits)) - {Hit}:  # a subclass may have more fields
        copies = [
            set_original(replace(hit, score=score), hit.original) for hit, score in zip(hits, scores, strict=True)
        ]
        if provider is None:
            return copies
        return [copy if copy.score is None else copy.with_metadata(rerank_provider=provider) for copy in copies]
    copies = []
    for hit, score in zip(hits, scores, strict=True):
        copy: Any = _HitSlots()
        copy.id = hit.id
        copy.text = hit._text  # type: ignore[attr-defined]
        copy.score = score
        copy.source = hit.source
        copy.metadata = hit._metadata  # type: ignore[attr-defined]
        copy._original = hit._original
        copy.__class__ = Hit
        copies.append(copy)
    if provider is not None:
        for copy, hit, score in zip(copies, hits, scores, strict=True):
            if score is not None:  # load the hit now, because loading it later would overwrite the metadata
                _set_text(copy, hit.text)
                _set_metadata(copy, {**_get_metadata(hit), "rerank_provider": provider})
    return copies


rescored = with_scores  # the name of `with_scores` in Resift 0.2


def sort_key(hit: Hit) -> tuple[bool, float, str]:
    """Return the sort key of hits: best score first, equal scores by id, unscored hits last."""
    return (True, 0.0, hit.id) if hit.score is None else (False, -hit.score, hit.id)


def to_finite_float(value: object, *, of: str) -> float:
    """Return the value as a finite float; raises InvalidHitError, whose message names `of`, for other values."""
    # bool is an int in Python, but True is not a score.
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidHitError(f"{of} has score {value!r}; a score must be a finite number, or None.")
    return number


def _same_value(value: str, alias_value: str, name: str, alias: str) -> str:
    if value and value != alias_value:
        raise InvalidHitError(
            f"Hit has {name}={value!r} and {alias}={alias_value!r}, which are the same field; pass only one."
        )
    return alias_value
