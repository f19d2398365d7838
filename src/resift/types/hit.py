"""Hit: one candidate. The only file that copies one, so a field added here is carried through every stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from operator import attrgetter
from typing import Any, Protocol

from resift.errors import InvalidHitError
from resift.types.json_values import JsonMapping, JsonObject, Metadata
from resift.validation import convert


class StoredContent(Protocol):
    """Text and metadata of a document that are still as a store keeps them."""

    def load(self) -> tuple[str, Metadata]:
        """Verify and decode both; called at their first use."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Hit:
    """One candidate: what it is, where it came from, and how it was judged last.

    `score` is None where nobody judged the hit. `doc_id` and `source_store` are other names of `id` and
    `source`. Raises InvalidHitError for an id that is no non-empty string or a score that is no finite
    number.
    """

    id: str
    text: str = ""
    score: float | None = None
    source: str = ""
    metadata: Metadata = field(default_factory=dict)

    # Written out for the two aliases, and because it takes two thirds of the time of a generated one.
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
        id = _either(id, doc_id, "id", "doc_id") if doc_id else id
        if not isinstance(id, str) or not id:
            raise InvalidHitError(f"Hit id is {id!r}; it must be a non-empty string.")
        if not isinstance(text, str):
            raise InvalidHitError(f"Hit {id!r} has text of type {type(text).__name__}; it must be a string.")
        if not isinstance(source, str) or not (metadata is None or isinstance(metadata, Mapping)):
            raise InvalidHitError(f"Hit {id!r} needs a string as its source and a dict as its metadata.")
        if score is not None and (type(score) is not float or not math.isfinite(score)):
            score = finite(score, of=f"Hit {id!r}")
        _set_id(self, id)
        _set_text(self, text)
        _set_score(self, score)
        _set_source(self, _either(source, source_store, "source", "source_store") if source_store else source)
        _set_metadata(self, {} if metadata is None else metadata)

    def __repr__(self) -> str:
        # Neither text nor metadata: logs and tracebacks show this, and documents do not belong there.
        return (
            f"<Hit {self.id!r} score={self.score} source={self.source!r} text of {len(self.text)} characters>"
        )

    def __hash__(self) -> int:
        return hash((self.id, self.score, self.source))

    @property
    def doc_id(self) -> str:
        """The id, by the name that citations use."""
        return self.id

    @property
    def source_store(self) -> str:
        """The source, by the name that citations use."""
        return self.source

    @property
    def rerank_provider(self) -> str | None:
        """Which provider gave the rerank score, if any did."""
        provider = self.metadata.get("rerank_provider")
        return None if provider is None else str(provider)

    def with_metadata(self, **extra: object) -> Hit:
        """Return a copy with these metadata entries added."""
        metadata = {**self.metadata, **extra}
        if type(self) is Hit:
            return Hit(self.id, self.text, self.score, self.source, metadata)
        return replace(self, metadata=metadata)

    def to_dict(self) -> JsonObject:
        """Return plain data that `from_dict` turns back into an equal hit."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**data, "metadata": dict(self.metadata)}

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Hit:
        """Return the hit that `to_dict` described; raises InputError for anything else."""
        from resift.types.stored import HitData

        stored = convert(data, HitData, name="a hit")
        # A subclass checks its own fields.
        values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        return cls(**{name: getattr(stored, name, value) for name, value in values.items()})

    @classmethod
    def from_citation(cls, citation: Sequence[Any], *, text: str = "") -> Hit:
        """Return the hit of a citation (doc_id, score, source_store, metadata); its text is elsewhere."""
        doc_id, score, source, metadata = citation
        return cls(doc_id, text, score, source, dict(metadata))


# A frozen class refuses plain assignment; its slots' own setters are what object.__setattr__ ends in.
_set_id, _set_text, _set_score, _set_source, _set_metadata = (
    Hit.__dict__[one.name].__set__ for one in fields(Hit)
)
_get_text, _get_metadata = Hit.__dict__["text"].__get__, Hit.__dict__["metadata"].__get__
_get_id, _get_source = attrgetter("id"), attrgetter("source")


def _read_text(hit: Hit) -> str:
    text = _get_text(hit)
    return text if isinstance(text, str) else _load(hit)[0]


def _read_metadata(hit: Hit) -> Metadata:
    metadata: Metadata | None = _get_metadata(hit)
    return _load(hit)[1] if metadata is None else metadata


def _load(hit: Hit) -> tuple[str, Metadata]:
    content: Any = _get_text(hit)
    if isinstance(content, str):  # another thread has loaded it meanwhile
        return content, _get_metadata(hit)
    text, metadata = content.load()
    _set_metadata(hit, metadata)  # before the text, by which other threads see that both are there
    _set_text(hit, text)
    return text, metadata


# On top of the slots. A __getattr__ would slow down every attribute, not only these two.
Hit.text = property(_read_text, _set_text)  # type: ignore[assignment, misc]
Hit.metadata = property(_read_metadata, _set_metadata)  # type: ignore[assignment, misc]


def lazy_hits(rows: Iterable[tuple[str, float, StoredContent]], *, source: str) -> list[Hit]:
    """Return hits of (id, score, content) whose text and metadata are loaded when they are first used.

    Nothing is checked: ids and scores are those of a store of Resift.
    """
    hits = []
    for id, score, content in rows:
        hit = object.__new__(Hit)
        _set_id(hit, id)
        _set_text(hit, content)
        _set_score(hit, score)
        _set_source(hit, source)
        _set_metadata(hit, None)
        hits.append(hit)
    return hits


def load_hits(hits: Iterable[Hit]) -> None:
    """Load the text and metadata of these hits now; raises what the store raises for a damaged document."""
    for hit in hits:
        _read_text(hit)


def some_lack_text(hits: Iterable[Hit]) -> bool:
    """Say whether a hit has no text, without loading any: a store loads empty texts at once."""
    return "" in map(_get_text, hits)


def same_text(hit: Hit, other: Hit) -> bool:
    """Say whether two hits have the same text; copies of one hit are compared without loading it."""
    return _get_text(hit) is _get_text(other) or hit.text == other.text


def with_scores(
    hits: Iterable[Hit], scores: Iterable[float | None], *, provider: str | None = None
) -> list[Hit]:
    """Return copies with these scores, which must be finite or None; nothing else is checked again.

    The metadata of a hit with a score names the provider, if there is one.
    """
    hits = list(hits)
    if set(map(type, hits)) <= {Hit} and provider is None:
        return _copy_columns(hits, list(scores))
    if set(map(type, hits)) - {Hit}:  # of a subclass, with fields of its own
        copies = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
        if provider is None:
            return copies
        return [
            copy if copy.score is None else copy.with_metadata(rerank_provider=provider) for copy in copies
        ]
    copies = list(map(object.__new__, repeat(Hit, len(hits))))
    for copy, hit, score in zip(copies, hits, scores, strict=True):
        _set_id(copy, hit.id)
        _set_score(copy, score)
        _set_source(copy, hit.source)
        if provider is None or score is None:
            _set_text(copy, _get_text(hit))
            _set_metadata(copy, _get_metadata(hit))
        else:  # loaded: content that is loaded later would replace the metadata
            _set_text(copy, hit.text)
            _set_metadata(copy, {**hit.metadata, "rerank_provider": provider})
    return copies


def _copy_columns(hits: list[Hit], scores: list[float | None]) -> list[Hit]:
    """Return copies with these scores, made field by field: a loop over hits takes a quarter longer."""
    if len(scores) != len(hits):
        raise ValueError(f"{len(scores)} scores for {len(hits)} hits")
    copies = list(map(object.__new__, repeat(Hit, len(hits))))
    # `any` runs the setters, which return None.
    any(map(_set_id, copies, map(_get_id, hits)))
    any(map(_set_text, copies, map(_get_text, hits)))
    any(map(_set_score, copies, scores))
    any(map(_set_source, copies, map(_get_source, hits)))
    any(map(_set_metadata, copies, map(_get_metadata, hits)))
    return copies


rescored = with_scores
"""The name of `with_scores` in Resift 0.2."""


def by_score(hit: Hit) -> tuple[bool, float, str]:
    """Return the key of the one order of hits: best score first, equal ones by id, unjudged ones last."""
    return (True, 0.0, hit.id) if hit.score is None else (False, -hit.score, hit.id)


def finite(value: Any, *, of: str) -> float:
    """Return the value as a finite float, or raise InvalidHitError that names what it belongs to."""
    # bool is an int to Python, but True is no score.
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidHitError(
            f"{of} has score {value!r}; a score must be a finite number, or None where nobody judged it."
        )
    return number


def _either(one: str, other: str, name: str, alias: str) -> str:
    if one and one != other:
        raise InvalidHitError(f"Hit has {name}={one!r} and {alias}={other!r}; they are one field. Give one.")
    return other
