"""Protocols of rerankers, scorers, stores and embedders: one method each, no base classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from resift._internal.arrays import Array
from resift._internal.lazy_exports import renamed_names
from resift.deadline import Deadline
from resift.types import Hit, JsonMapping, ScorerInfo, Scores, Where


@runtime_checkable
class Reranker(Protocol):
    """Turns one ranked list per store into one list of at most k hits."""

    async def fuse(self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None) -> list[Hit]:
        """Return at most k hits, best first; every id is from the input."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Scores how well each hit answers the query: cross-encoders, hosted rerankers, BM25, tiers.

    An optional attribute `info`, a `ScorerInfo`, has the scale of its scores and the languages it was trained
    on. `describe_scorer` reads it, with defaults for scorers without one.
    """

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit in the order given; None where there was no time or no answer.

        Raises only when nothing at all could be scored.
        """
        ...


@runtime_checkable
class VectorStore(Protocol):
    """Vector search. Embeds the query with its own embedder."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        ...


@runtime_checkable
class DocStore(Protocol):
    """Keyword search."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        ...


@runtime_checkable
class GraphStore(Protocol):
    """Runs read-only Cypher."""

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
class HasVectors(Protocol):
    """A store that can return the vectors of its documents."""

    async def get_vectors(self, ids: Sequence[str]) -> Mapping[str, Array]:
        """Return id -> vector for the ids in the store."""
        ...


@runtime_checkable
class HasChunks(Protocol):
    """A store that knows the document and the position of its chunks."""

    async def get_chunks(self, hit: Hit, *, before: int, after: int) -> list[Hit]:
        """Return the chunks around a hit, with the hit, in the order of its document; [] if it has none."""
        ...


@runtime_checkable
class ScoringStage(Protocol):
    """A stage with a scorer."""

    scorer: Scorer


@runtime_checkable
class SharesBreaker(Protocol):
    """A scorer whose pipelines share one breaker per upstream service."""

    @property
    def breaker_key(self) -> tuple[str, ...]:
        """Provider, address, model and key."""
        ...


@runtime_checkable
class FollowsInstructions(Protocol):
    """A scorer that takes an instruction. Its scores have `supports_instruction` in their description."""

    def with_instruction(self, instruction: str) -> Scorer:
        """Return this scorer with an instruction; itself if its model follows none."""
        ...


@runtime_checkable
class HasModelName(Protocol):
    """A scorer or embedder with the name of its model."""

    model_name: str


@runtime_checkable
class CountsTokens(Protocol):
    """An embedder that counts tokens as its model does."""

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return the number of tokens of all texts."""
        ...


class IndexMetadata(Protocol):
    """Properties of an index file."""

    @property
    def embedder(self) -> str:
        """Name of the model of the vectors; empty without vectors."""
        ...

    @property
    def generation(self) -> int:
        """Increases with every change of the file."""
        ...


@runtime_checkable
class CanReopenVectors(Protocol):
    """A store on a file that can search its vectors with another embedder."""

    def metadata(self) -> IndexMetadata:
        """Return the properties of the file."""
        ...

    def with_embedder(self, embedder: Embedder) -> VectorStore:
        """Return a view that searches with that embedder."""
        ...


@runtime_checkable
class CanOptimize(Protocol):
    """A store with an index that can be rebuilt."""

    async def optimize(self) -> str:
        """Rebuild it and return a summary."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A store that can be closed without an event loop."""

    def release(self) -> None:
        """Close it; waits for running work."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors of one dimension.

    An optional attribute `languages` has the codes of the languages that it was trained on, or "any". The
    default order ignores vectors for scripts of other languages.
    """

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Array:
        """Return a float32 array of shape (len(texts), dimension)."""
        ...


@runtime_checkable
class Similarity(Protocol):
    """The scorer interface of txtai."""

    def __call__(self, query: str, texts: Sequence[str]) -> Iterable[tuple[int, float]]:
        """Return (index into texts, score) pairs, best first."""
        ...


__getattr__ = renamed_names(
    __name__,
    {
        "name_of": "display_name",
        "own_name": "declared_name",
        "needs_of": "required_capabilities",
        "VectorKeeper": "HasVectors",
        "OfModel": "HasModelName",
        "BuiltWith": "IndexMetadata",
        "OpensVectors": "CanReopenVectors",
        "Optimises": "CanOptimize",
    },
)


def declared_name(part: object) -> str:
    """Return the attribute `name` of a part, "" without one."""
    return str(getattr(part, "name", "") or "")


def display_name(part: object) -> str:
    """Return the name of a part for traces, events and reasons: its `name`, or that of its type."""
    return str(getattr(part, "name", "") or getattr(part, "__name__", "") or type(part).__name__)


def required_capabilities(part: object) -> tuple[str, ...]:
    """Return the capabilities in the attribute `requires` of a reranker, scorer or stage."""
    required = getattr(part, "requires", None) or ()
    return (required,) if isinstance(required, str) else tuple(required)


def describe_scorer(scorer: object) -> ScorerInfo:
    """Return the description (`info`) of a scorer; without one, an unknown scale and any language."""
    info = getattr(scorer, "info", None)
    if isinstance(info, ScorerInfo):
        return info
    return ScorerInfo(
        name=display_name(scorer),
        model_digest=str(getattr(scorer, "model_digest", "") or ""),
        pointwise=getattr(scorer, "pointwise", False) is True,
    )
