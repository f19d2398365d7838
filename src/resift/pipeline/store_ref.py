"""Which stores are asked, under which name, and how: search for text and vectors, Cypher for graphs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from resift.errors import InputError
from resift.protocols import DocStore, GraphStore, VectorStore, name_of, own_name
from resift.stores.filters import matches
from resift.stores.graph.cypher_guard import check_cypher_for
from resift.types import Hit, JsonMapping, Where
from resift.validation import check_k, check_number, check_text

_KINDS = {"text": "doc", "vector": "vector", "hybrid": "hybrid"}

QUERY_PARAMETER = "query"
"""The parameter that carries the question into Cypher: write `$query` in the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRef:
    """One branch of a fan-out: a name, the store behind it, and how it is asked.

    A graph store needs `cypher`; the question reaches it as the parameter `$query`, never as text in
    the statement. `k` and `timeout_s` replace those of the whole fan-out for this branch.
    """

    name: str = ""
    store: Any = None
    cypher: str | None = None
    parameters: JsonMapping = field(default_factory=dict)
    k: int | None = None
    timeout_s: float | None = None
    kind: str = ""

    @property
    def capability(self) -> str:
        """What must be granted before this store is read."""
        # A view of a store (docs.text) reads the store: what is granted for it counts.
        own = own_name(self.owner) if self.owner is not self.store else ""
        return f"db.{own or self.name}:read"

    @property
    def owner(self) -> Any:
        """The store behind a view of it (`stores.base.StoreView`); else the store itself."""
        # By attribute: asking for the protocol took 57 to 87 µs, and every search asks several times.
        return getattr(self.store, "store", self.store)

    @property
    def provider(self) -> str:
        """The engine's name for events."""
        return _provider(self.owner)

    async def ask(self, query: str, *, k: int, where: Where | None, lazy: bool = False) -> Sequence[Hit]:
        """Put the question to the store in its own way; `lazy` prefers `search_lazy` where it has one."""
        if self.cypher is not None:
            # Here, and not only in our own stores: a store by somebody else may have no guard at all.
            check_cypher_for(self.store, self.cypher)
            parameters = {**self.parameters, QUERY_PARAMETER: query}
            rows: Sequence[Hit] = await self.store.query(self.cypher, parameters, k=k)
            # Cypher knows nothing of our filter; what does not match it must not come through.
            return rows if where is None else [row for row in rows if matches(row.metadata, where)]
        # Stores that know no filter still serve searches without one.
        filters = {} if where is None else {"where": where}
        search = (getattr(self.store, "search_lazy", None) if lazy else None) or self.store.search
        found: Sequence[Hit] = await search(query, k=k, **filters)
        return found


Store = VectorStore | DocStore | GraphStore
Stores = Store | StoreRef | Iterable[Store | StoreRef]
"""What a pipeline asks: one store or several, each as it is or with how it is asked."""


class ResolvedStore:
    """A store known by its name: it is looked up each time that it is asked."""

    def __init__(self, name: str, resolve: Callable[[str], object]) -> None:
        self.name = name
        self.provider = ""
        self._resolve = resolve

    async def search(self, query: str, *, k: int, **filters: Any) -> Sequence[Hit]:
        """Search the store that the name means now."""
        found: Sequence[Hit] = await (await self._found("search")).search(query, k=k, **filters)
        return found

    async def query(self, cypher: str, parameters: JsonMapping | None = None, *, k: int) -> Sequence[Hit]:
        """Query the graph that the name means now."""
        found: Sequence[Hit] = await (await self._found("query")).query(cypher, parameters, k=k)
        return found

    async def _found(self, method: str) -> Any:
        store = self._resolve(self.name)
        store = await store if inspect.isawaitable(store) else store
        if not callable(getattr(store, method, None)):
            raise InputError(
                f"The resolver gave a {type(store).__name__} without `async {method}` for {self.name!r}."
            )
        self.provider = _provider(store)
        return store


def store_refs(
    stores: Stores | str | Iterable[Store | StoreRef | str], *, resolve: Callable[[str], object] | None = None
) -> tuple[StoreRef, ...]:
    """Return one checked reference per store, in the order declared.

    Takes stores, names (looked up with `resolve` when they are asked) and StoreRefs; refuses two of one name.
    """
    if isinstance(stores, (str, bytes)) or not isinstance(stores, Iterable):
        stores = [stores]
    refs = tuple(_checked(_named(store, resolve)) for store in stores)
    if not refs:
        raise InputError("No stores given; pass at least one.")
    seen: set[str] = set()
    for ref in refs:
        if ref.name in seen:
            raise InputError(
                f"Two stores are named {ref.name!r}. Give each its own name: StoreRef(name=…, store=…)."
            )
        seen.add(ref.name)
    return refs


def _named(store: object, resolve: Callable[[str], object] | None) -> StoreRef:
    ref = store if isinstance(store, StoreRef) else _bare(store)
    check_text(ref.name, "The name of a store")
    if ref.store is None:
        if resolve is None:
            # What looks like a path was meant as a file.
            remedy = (
                f"open it: SQLiteStore({ref.name!r})"
                if os.sep in ref.name or "." in ref.name
                else ("pass store_resolver= or StoreRef(store=…)")
            )
            raise InputError(f"Store {ref.name!r} is only a name; {remedy}.")
        ref = replace(ref, store=ResolvedStore(ref.name, resolve))
    name = ref.name or name_of(ref.store)
    return replace(ref, name=name, kind=ref.kind or _kind(ref))


def _provider(store: object) -> str:
    return str(getattr(store, "provider", "") or type(store).__name__)


def _bare(store: object) -> StoreRef:
    return StoreRef(name=store) if isinstance(store, str) else StoreRef(store=store)


def _kind(ref: StoreRef) -> str:
    if ref.cypher is not None:
        return "graph"
    kind = getattr(ref.store, "kind", "") or _KINDS.get(getattr(ref.store, "mode", ""), "")
    return kind if isinstance(kind, str) and kind else "search"


def _checked(ref: StoreRef) -> StoreRef:
    if ref.k is not None:
        check_k(ref.k, name=f"Store {ref.name!r}: k", min=1)
    if ref.timeout_s is not None:
        check_number(ref.timeout_s, f"Store {ref.name!r}: timeout_s", gt=0)
    if ref.cypher is not None:
        check_text(ref.cypher, f"Store {ref.name!r}: cypher")
        check_cypher_for(ref.store, ref.cypher)
    needed = "query" if ref.cypher is not None else "search"
    if callable(getattr(ref.store, needed, None)):
        return ref
    what = type(ref.store).__name__
    if needed == "search" and isinstance(ref.store, GraphStore):
        raise InputError(
            f"Store {ref.name!r} ({what}) answers Cypher; pass StoreRef(store=…, cypher='MATCH … $query …')."
        )
    raise InputError(f"Store {ref.name!r} is a {what} without `async {needed}`; see resift.protocols.")
