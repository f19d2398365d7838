"""RetrievalNode: a pipeline as a node of a graph engine; it reads `state.query` and writes `retrieved`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from resift.errors import InputError
from resift.events import Sink
from resift.pipeline.fan_out import OverFetch, Store, StoreRef, store_refs
from resift.pipeline.pipeline import TIMEOUT_S, Pipeline
from resift.pipeline.stages import Fuse, Rerank
from resift.protocols import Reranker, Scorer
from resift.types import JsonValue, Ranking
from resift.validation import DEFAULT_K

EXACTLY = OverFetch(factor=1)  # fetch exactly k hits per store; the graph engine decides whether to fetch more


class RetrievalNode:
    """Queries stores in parallel and fuses their hits, with RRF unless a reranker is given.

    `stores` are stores, StoreRefs, or names that `store_resolver` resolves to stores. `rerank` is a scorer
    (`score`, applied to the hits fused by RRF) or a reranker (`fuse`, used instead of RRF).
    `capabilities=None` grants all capabilities. `requires` lists `db.<store>:read` per store, followed by the
    capabilities that the reranker requires.
    """

    def __init__(
        self,
        stores: Iterable[Store | StoreRef | str],
        k: int = DEFAULT_K,
        rerank: Reranker | Scorer | None = None,
        *,
        store_resolver: Callable[[str], object] | None = None,
        capabilities: Collection[str] | None = None,
        deadline_s: float | None = None,
        timeout_s: float | None = TIMEOUT_S,
        fetch: OverFetch = EXACTLY,
        sink: Sink | None = None,
    ) -> None:
        # A cross-encoder has both `score` and `fuse`. It is used as a scorer, which works best on hits fused by RRF.
        scorer = rerank if isinstance(rerank, Scorer) else None
        fuser = rerank if isinstance(rerank, Reranker) and scorer is None else None
        if rerank is not None and scorer is None and fuser is None:
            raise InputError(f"rerank is a {type(rerank).__name__}; pass an object with `fuse` or `score`.")
        self._capabilities = capabilities
        self._pipeline = Pipeline(
            store_refs(stores, resolve=store_resolver),
            fuse=None if fuser is None else Fuse(fuser, keep=k),
            rerank=None if scorer is None else Rerank(scorer, depth=None),
            k=k,
            fetch=fetch,
            deadline_s=deadline_s,
            timeout_s=timeout_s,
            sink=sink,
        )
        self.stores = self._pipeline.stores
        self.k = k
        self.requires = self._pipeline.requires

    async def execute(self, state: object, ctx: object = None) -> dict[str, Ranking]:
        """Return `{"retrieved": ranking}` for the query in the state.

        A context may contain `capabilities` and `deadline_s`; capabilities of the node take precedence.
        """
        query = _read(state, "query")
        if query is None:
            raise InputError("The state has no query; add an attribute or a key `query`.")
        granted = self._capabilities if self._capabilities is not None else _read(ctx, "capabilities")
        ranking = await self._pipeline.search(
            query, deadline_s=_read(ctx, "deadline_s"), where=_read(state, "where"), capabilities=granted
        )
        return {"retrieved": ranking}


def _read(container: object, name: str) -> JsonValue:
    if isinstance(container, Mapping):
        return container.get(name)
    return getattr(container, name, None)
