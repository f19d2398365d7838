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
        """Return at most k hits, best first; all ids come from the input."""


@runtime_checkable
class Scorer(Protocol):
    """Scores how well each hit answers the query: cross-encoders, hosted rerankers, BM25, tiers.

    The optional attribute `info`, a `ScorerInfo`, describes the scale of its scores and the languages it was
    trained on. `describe_scorer` reads it, with defaults for scorers without the attribute.
    """

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit in the same order; None for hits that were not scored in time.

        Raises only if no hit could be scored.
        """


@runtime_checkable
class VectorStore(Protocol):
    """Vector search. The store embeds the query with its own embedder."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata matches `where`, best first."""


@runtime_checkable
class DocStore(Protocol):
    """Keyword search."""

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata matches `where`, best first."""


@runtime_checkable
class GraphStore(Protocol):
    """Runs read-only Cypher."""

    async def query(self, cypher: str, parameters: JsonMapping | None = None, *, k: int) -> list[Hit]:
        """Return at most k hits from the rows of the statement, in row order."""


@runtime_checkable
class LazyStore(Protocol):
    """A store whose hits can load text and metadata later; pipelines prefer it to `search`."""

    async def search_lazy(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return the same hits as `search`, created with `resift.types.hit.lazy_hits`."""


@runtime_checkable
class HasVectors(Protocol):
    """A store that can return the vectors of its documents."""

    async def get_vectors(self, ids: Sequence[str]) -> Mapping[str, Array]:
        """Return a mapping from id to vector, for the ids in the store."""


@runtime_checkable
class HasChunks(Protocol):
    """A store that records the document and the position of each chunk."""

    async def get_chunks(self, hit: Hit, *, before: int, after: int) -> list[Hit]:
        """Return a hit and the chunks around it, in document order; [] if it is not a chunk."""


@runtime_checkable
class ScoringStage(Protocol):
    """A stage with a scorer."""

    scorer: Scorer


@runtime_checkable
class SharesBreaker(Protocol):
    """A scorer that shares one breaker per upstream service with other scorers."""

    @property
    def breaker_key(self) -> tuple[str, ...]:
        """Provider, address, model and key."""


@runtime_checkable
class FollowsInstructions(Protocol):
    """A scorer that accepts an instruction. Its scores report `supports_instruction` in their description."""

    def with_instruction(self, instruction: str) -> Scorer:
        """Return a scorer with this instruction; the scorer itself if its model does not follow instructions."""


@runtime_checkable
class HasModelName(Protocol):
    """A scorer or embedder that names its model."""

    model_name: str


@runtime_checkable
class CountsTokens(Protocol):
    """An embedder that counts tokens with the tokenizer of its model."""

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return the total number of tokens in the texts."""


class IndexMetadata(Protocol):
    """Properties of an index file."""

    @property
    def embedder(self) -> str:
        """Name of the model that produced the vectors; empty without vectors."""

    @property
    def generation(self) -> int:
        """A number that increases with every change to the file."""


@runtime_checkable
class CanReopenVectors(Protocol):
    """A file-based store that can search its vectors with another embedder."""

    def metadata(self) -> IndexMetadata:
        """Return the properties of the file."""

    def with_embedder(self, embedder: Embedder) -> VectorStore:
        """Return a view that searches with this embedder."""


@runtime_checkable
class CanOptimize(Protocol):
    """A store with an index that can be rebuilt."""

    async def optimize(self) -> str:
        """Rebuild the index and return a summary."""


@runtime_checkable
class Releasable(Protocol):
    """A store that can be closed without an event loop."""

    def release(self) -> None:
        """Wait for running work and close the store."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors of the same dimension.

    The optional attribute `languages` lists the codes of the languages that it was trained on, or is "any".
    For queries in scripts of other languages, the default order ignores its vectors.
    """

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Array:
        """Return a float32 array of shape (len(texts), dimension)."""


@runtime_checkable
class Similarity(Protocol):
    """The scorer interface of txtai."""

    def __call__(self, query: str, texts: Sequence[str]) -> Iterable[tuple[int, float]]:
        """Return (index into texts, score) pairs, best first."""


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
    """Return the `name` attribute of a part, or "" if it has none."""
    return str(getattr(part, "name", "") or "")


def display_name(part: object) -> str:
    """Return the name of a part for traces, events and reasons: its `name`, or the name of its type."""
    return str(getattr(part, "name", "") or getattr(part, "__name__", "") or type(part).__name__)


def required_capabilities(part: object) -> tuple[str, ...]:
    """Return the capabilities that a reranker, scorer or stage lists in its `requires` attribute."""
    required = getattr(part, "requires", None) or ()
    return (required,) if isinstance(required, str) else tuple(required)


def describe_scorer(scorer: object) -> ScorerInfo:
    """Return the `info` of a scorer, or a description with an unknown scale and any language."""
    info = getattr(scorer, "info", None)
    if isinstance(info, ScorerInfo):
        return info
    return ScorerInfo(
        name=display_name(scorer),
        model_digest=str(getattr(scorer, "model_digest", "") or ""),
        pointwise=getattr(scorer, "pointwise", False) is True,
    )
