"""The roles that parts play: one method each, no base classes to inherit from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.types import Hit, JsonMapping, ScorerInfo, Scores, Where


@runtime_checkable
class Reranker(Protocol):
    """Turns one ranked list per store into one list of at most k hits."""

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Return at most k hits, best first; every id is from the input."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Says how well each hit answers the query: cross-encoders, hosted rerankers, BM25, tiers.

    A scorer may describe itself in an attribute `info`, a `ScorerInfo`: what scale its scores have and which
    languages it was trained on. `describe_scorer` reads it, with defaults for scorers without one.
    """

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit in the order given; None where there was no time or no answer.

        Raises only when nothing at all could be scored.
        """
        ...


@runtime_checkable
class VectorStore(Protocol):
    """Finds by meaning. Embeds the query with its own embedder."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        ...


@runtime_checkable
class DocStore(Protocol):
    """Finds by words."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        ...


@runtime_checkable
class GraphStore(Protocol):
    """Answers read-only Cypher."""

    async def query(self, cypher: str, parameters: JsonMapping | None = None, *, k: int) -> list[Hit]:
        """Return at most k hits from the rows of the statement, in row order."""
        ...


@runtime_checkable
class LazyStore(Protocol):
    """A store whose hits can load text and metadata later; pipelines prefer it to `search`."""

    async def search_lazy(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return the hits of `search`, made by `resift.types.hit.lazy_hits`."""
        ...


@runtime_checkable
class VectorKeeper(Protocol):
    """A store that gives out the vectors it keeps."""

    async def vectors_of(self, ids: Sequence[str]) -> Mapping[str, Array]:
        """Return id -> vector of those that it knows."""
        ...


@runtime_checkable
class ScoringStage(Protocol):
    """A stage that asks a scorer."""

    scorer: Scorer


@runtime_checkable
class SharesBreaker(Protocol):
    """A scorer whose upstream is known: all that ask it share one breaker, whichever pipeline they are in."""

    @property
    def breaker_key(self) -> tuple[str, ...]:
        """Provider, address, model and which key."""
        ...


@runtime_checkable
class OfModel(Protocol):
    """A scorer or embedder that says which model it reads with."""

    model_name: str


@runtime_checkable
class CountsTokens(Protocol):
    """An embedder that counts tokens as its model does."""

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens the texts have together."""
        ...


class BuiltWith(Protocol):
    """What a file of vectors says of itself."""

    @property
    def embedder(self) -> str:
        """Name of the model that made the vectors; empty where there are none."""
        ...

    @property
    def generation(self) -> int:
        """Grows with every change of the file."""
        ...


@runtime_checkable
class OpensVectors(Protocol):
    """A store on a file that says what it was built with, and opens its vectors with another embedder."""

    def facts(self) -> BuiltWith:
        """Return what the file says of itself."""
        ...

    def vectors_by(self, embedder: Embedder) -> VectorStore:
        """Return a view that searches by vectors of that embedder."""
        ...


@runtime_checkable
class Optimises(Protocol):
    """A store with an index that can be built anew."""

    async def optimise(self) -> str:
        """Build it and say what was done."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A store that can be closed without an event loop."""

    def release(self) -> None:
        """Close it; waits for running work."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors of one dimension."""

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Array:
        """Return a float32 array of shape (len(texts), dimension)."""
        ...


@runtime_checkable
class Similarity(Protocol):
    """txtai's shape of a scorer."""

    def __call__(self, query: str, texts: Sequence[str]) -> Iterable[tuple[int, float]]:
        """Return (index into texts, score) pairs, best first."""
        ...


# By attribute, where roles are optional and every search asks: asking for a protocol takes 57 to 87 µs.
def own_name(part: object) -> str:
    """Return the name that a part gives itself, "" where it has none."""
    return str(getattr(part, "name", "") or "")


def name_of(part: object) -> str:
    """Return the name that a part gives itself for traces, events and reasons; else that of its type."""
    return own_name(part) or str(getattr(part, "__name__", "") or type(part).__name__)


def needs_of(part: object) -> tuple[str, ...]:
    """Return the capabilities that a reranker, scorer or stage says it needs; most need none."""
    needs = getattr(part, "requires", None) or ()
    return (needs,) if isinstance(needs, str) else tuple(needs)


def describe_scorer(scorer: object) -> ScorerInfo:
    """Return the scorer's own description (`info`); without one, an unknown scale and any language."""
    info = getattr(scorer, "info", None)
    if isinstance(info, ScorerInfo):
        return info
    return ScorerInfo(
        name=name_of(scorer),
        model_digest=str(getattr(scorer, "model_digest", "") or ""),
        pointwise=getattr(scorer, "pointwise", False) is True,
    )
