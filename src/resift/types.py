"""The values that flow through everything: Step, Ledger, Hit, Scores, Ranking. No I/O, no policy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from resift.errors import InputError, InvalidHitError

if TYPE_CHECKING:
    from resift.explain import Explanation

CUT = "cut"
"""The stage name of the step that a hit gets when it is left out."""

INTERNAL_METADATA = frozenset({"score", "ce_score", "rerank_score", "rerank_provider", "probability"})


class Step(NamedTuple):
    """One place that a hit had: in which stage, by whose judgement, at what rank and score.

    `score` is None where the stage could not score the hit. A stage that adds up parts writes one
    step per part (source = the part's name) and then its total (source = "").
    """

    stage: str
    source: str
    rank: int
    score: float | None
    note: str = ""


class Ledger(Sequence[Step]):
    """The steps of one hit, in order."""

    __slots__ = ("_steps",)

    _steps: tuple[Step, ...]

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps = tuple(steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps as a tuple."""
        return self._steps

    def then(self, *steps: Step) -> Ledger:
        """Return a ledger with these steps at the end."""
        made = Ledger.__new__(Ledger)  # __init__ would cost more than everything else here
        made._steps = self.steps + steps
        return made

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, index: int | slice) -> Step | tuple[Step, ...]:
        return self.steps[index]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ledger):
            return self.steps == other.steps
        return self.steps == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"Ledger({list(self.steps)!r})"

    def __reduce__(self) -> tuple[type[Ledger], tuple[tuple[Step, ...]]]:
        return (Ledger, (self.steps,))


@dataclass(frozen=True, slots=True)
class Hit:
    """One candidate: what it is, where it came from, and every place it had on the way.

    Raises InvalidHitError for an id that is no non-empty string or a score that is no finite number.
    """

    id: str
    text: str = ""
    score: float = 0.0
    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InvalidHitError(f"Hit id is {self.id!r}; it must be a non-empty string.")
        if not isinstance(self.text, str):
            raise InvalidHitError(
                f"Hit {self.id!r} has text of type {type(self.text).__name__}; it must be a string."
            )
        object.__setattr__(self, "score", finite(self.score, of=f"Hit {self.id!r}"))

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

    def step(self, stage: str, source: str, *, rank: int, score: float | None, note: str = "") -> Hit:
        """Return a copy that went through one more stage; its score is the step's, unless None."""
        step = Step(stage, source, rank, score, note)
        kept = self.score if score is None else score
        return draft(self.id, self.text, kept, self.source, self.metadata, self.ledger.then(step))

    def with_metadata(self, **extra: Any) -> Hit:
        """Return a copy with these metadata entries added."""
        return replace(self, metadata={**self.metadata, **extra})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that `from_dict` turns back into an equal hit."""
        return {
            "id": self.id,
            "text": self.text,
            "score": self.score,
            "source": self.source,
            "metadata": dict(self.metadata),
            "ledger": [list(step) if step.note else list(step[:4]) for step in self.ledger],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hit:
        """Return the hit that `to_dict` described."""
        steps = Ledger(Step(*step) for step in data.get("ledger", ()))
        values = {name: data[name] for name in ("text", "score", "source", "metadata") if name in data}
        return cls(data.get("id", ""), ledger=steps, **values)


class LedgerWriter(Protocol):
    """Knows the steps of many hits; may stand in a hit's ledger slot until somebody reads it."""

    def steps(self, hit: Hit) -> tuple[Step, ...]:
        """Return all steps of the hit."""
        ...


_NO_STEPS = Ledger()
_ledger_slot: Any = Hit.__dict__["ledger"]


def _read_ledger(hit: Hit) -> Ledger:
    held: Any = _ledger_slot.__get__(hit)
    # isinstance would ask the abstract base class, which takes longer than writing the steps.
    if type(held) is Ledger or not callable(held.steps):
        ledger: Ledger = held
        return ledger
    written = _NO_STEPS.then(*held.steps(hit))
    _ledger_slot.__set__(hit, written)
    return written


def _refuse_change(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to {name!r}: a {type(self).__name__} never changes")


# Python 3.11's own refusal breaks on slotted classes for names that are no fields (a TypeError about super).
setattr(Hit, "__setattr__", _refuse_change)  # noqa: B010

# A fused list of a thousand hits would otherwise spend most of its time writing ledgers nobody reads.
setattr(Hit, "ledger", property(_read_ledger, _ledger_slot.__set__, doc="Every place the hit had, in order."))  # noqa: B010


class _Draft:
    """A hit under construction, with the same slots as Hit so that it can become one."""

    __slots__ = ("id", "ledger", "metadata", "score", "source", "text")


def draft(  # noqa: PLR0917 - the fields of Hit, in their order
    id: str, text: str, score: float, source: str, metadata: Mapping[str, Any], ledger: Ledger | LedgerWriter
) -> Hit:
    """Build a hit from parts of valid hits, three times faster than Hit(…): nothing is checked again."""
    made: Any = _Draft()
    made.id = id
    made.text = text
    made.score = score
    made.source = source
    made.metadata = metadata
    made.ledger = ledger
    made.__class__ = Hit
    hit: Hit = made
    return hit


@dataclass(frozen=True, slots=True)
class Scores:
    """What a scorer says of a pool: one value per hit, None where it says nothing.

    `settled` means that hits without a value were left out on purpose, because they cannot matter.
    """

    values: Sequence[float | None]
    provider: str
    degraded: bool = False
    reason: str | None = None
    note: str = ""
    settled: bool = False

    @property
    def partial(self) -> bool:
        """Whether some hits, but not all, were left without a score."""
        missing = sum(value is None for value in self.values)
        return 0 < missing < len(self.values)


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Hit]):
    """Hits in their final order, and the truth about how they got there.

    `cut` keeps what was left out, so that `why` can answer for it; `unscored` names hits that no
    scorer judged; `failures` says per store what went wrong; `timings` are milliseconds per stage, and no
    part of what makes two rankings equal.
    """

    hits: tuple[Hit, ...] = ()
    degraded: bool = False
    reason: str | None = None
    tier: str | None = None
    unscored: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    cut: tuple[Hit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hits", tuple(self.hits))
        object.__setattr__(self, "cut", tuple(self.cut))
        object.__setattr__(self, "unscored", tuple(self.unscored))

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return any(hit.id == item for hit in self.hits)
        return item in self.hits

    @property
    def ids(self) -> list[str]:
        """The ids in order."""
        return [hit.id for hit in self.hits]

    @property
    def partial(self) -> bool:
        """Whether some of the hits were scored and some were not."""
        return 0 < len(self.unscored) < len(self.hits) + len(self.cut)

    def why(self, id: str) -> str:
        """Say in words why a hit stands where it stands, or why it is absent."""
        from resift.wording import why

        return why(self, id)

    def explain(self, *, query: str = "", top: int = 10) -> Explanation:
        """Return the path of each hit through the stages: print it, or `.save("page.html")`."""
        from resift.explain import Explanation, flow_of

        return Explanation(flow_of(self, query=query), top=top)

    def replay(self) -> list[str]:
        """Return the ids in the order that the ledgers alone give; equals `ids` (V5)."""
        from resift.wording import replay

        return replay(self.hits)

    def public(self) -> list[dict[str, Any]]:
        """Return what end users may see: no scores, no ledger, no provider (seed 004)."""
        return [
            {
                "id": hit.id,
                "text": hit.text,
                "source": hit.source,
                "metadata": {
                    key: value
                    for key, value in hit.metadata.items()
                    if key not in INTERNAL_METADATA and not key.startswith("_")
                },
            }
            for hit in self.hits
        ]

    def citations(self) -> list[tuple[str, float, str, Mapping[str, Any]]]:
        """Return (doc_id, score, source_store, metadata) per hit (N8)."""
        return [(hit.id, hit.score, hit.source, hit.metadata) for hit in self.hits]

    def to_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """Return plain data that `from_dict` turns back into an equal ranking.

        Timings differ from run to run, so they are left out unless asked for.
        """
        times = {"timings": dict(self.timings)} if timings else {}
        return {
            **times,
            "hits": [hit.to_dict() for hit in self.hits],
            "degraded": self.degraded,
            "reason": self.reason,
            "tier": self.tier,
            "unscored": list(self.unscored),
            "failures": dict(self.failures),
            "cut": [hit.to_dict() for hit in self.cut],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ranking:
        """Return the ranking that `to_dict` described."""
        hits = tuple(Hit.from_dict(hit) for hit in data.get("hits", ()))
        cut = tuple(Hit.from_dict(hit) for hit in data.get("cut", ()))
        return cls(hits, cut=cut, **{key: data[key] for key in _PLAIN_FIELDS if key in data})

    def to_json(self, *, indent: int | None = None, timings: bool = False) -> str:
        """Return canonical JSON: same ranking, same bytes (unless timings are asked for)."""
        return to_json(self.to_dict(timings=timings), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Ranking:
        """Return the ranking that `to_json` wrote."""
        return cls.from_dict(json.loads(text))


_PLAIN_FIELDS = ("degraded", "reason", "tier", "unscored", "failures", "timings")


def finite(value: Any, *, of: str) -> float:
    """Return the value as a finite float, or raise InvalidHitError that names what it belongs to."""
    # bool is an int to Python, but True is no score.
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidHitError(
            f"{of} has score {value!r}; a score must be a finite number. "
            "Drop the score or give the hit its last real one."
        )
    return number


def cut_to(hits: Sequence[Hit], k: int, *, note: str = "") -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Split into the first k and the rest; the rest get a step that says they were cut."""
    if k < 0:
        raise InputError(f"k is {k}; ask for k ≥ 0 hits.")
    return tuple(hits[:k]), placed(hits[k:], CUT, first=k + 1, note=note or f"k={k}")


def placed(
    hits: Iterable[Hit],
    stage: str,
    *,
    first: int = 1,
    note: str = "",
    notes: Mapping[str, str] | None = None,
) -> tuple[Hit, ...]:
    """Give each hit a step with its place; scores stay. Quicker than `Hit.step` in a loop.

    `notes` has a note for single ids, `note` is for all others.
    """
    own = notes or {}
    done: list[Hit] = []
    for rank, hit in enumerate(hits, start=first):
        # draft(...), written out: half of this loop's time would be the call.
        made: Any = _Draft()
        made.id = hit.id
        made.text = hit.text
        made.score = hit.score
        made.source = hit.source
        made.metadata = hit.metadata
        made.ledger = _Later((hit, (stage, "", rank, None, own.get(hit.id, note) if own else note)))
        made.__class__ = Hit
        done.append(made)
    return tuple(done)


def moved(hit: Hit, score: float, *steps: tuple[str, str, int, float | None, str]) -> Hit:
    """Return a copy with this score and more steps (the fields of `Step`), which are written when read."""
    return draft(hit.id, hit.text, score, hit.source, hit.metadata, _Later((hit, *steps)))


def all_moved(rows: Iterable[Sequence[Any]]) -> list[Hit]:
    """Do what `moved` does for many: each row is a hit, its score, and its steps."""
    done: list[Hit] = []
    for hit, score, *steps in rows:
        # draft(...), written out, as above.
        made: Any = _Draft()
        made.id = hit.id
        made.text = hit.text
        made.score = score
        made.source = hit.source
        made.metadata = hit.metadata
        made.ledger = _Later((hit, *steps))
        made.__class__ = Hit
        done.append(made)
    return done


class _Later(tuple[Any, ...]):
    """A ledger writer for one hit: what the hit had before, and what came then."""

    __slots__ = ()

    def steps(self, hit: Hit) -> tuple[Step, ...]:
        before, *more = self
        told: tuple[Step, ...] = before.ledger.steps
        return told + tuple([tuple.__new__(Step, step) for step in more])


def to_json(data: Any, *, indent: int | None = None) -> str:
    """Return canonical JSON: sorted keys, UTF-8 as is, no NaN; dates and array scalars as plain values."""
    try:
        return json.dumps(
            data, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain
        )
    except (TypeError, ValueError) as exc:
        raise InputError(f"Not JSON: {exc}. Keep metadata to strings, numbers, lists and dicts.") from exc


def _plain(value: Any) -> Any:
    for method in ("isoformat", "tolist"):  # dates; numpy scalars and arrays
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
