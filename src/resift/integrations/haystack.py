"""Haystack components: a ranker, a retriever, a joiner and embedders; plus Haystack retrievers as stores.

Haystack inspects `Variadic` annotations at run time, so this module does not postpone their evaluation.
"""
# ruff: noqa: E402 - the check for the extra comes before the imports that need it

import asyncio
import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from resift.errors import InputError, require

require("haystack", extra="haystack")

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.component.types import Variadic
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DocumentStore

from resift._internal.sync import run_sync, sync_method
from resift.index import Index
from resift.integrations import external_store as adapters
from resift.integrations.external_store import ExternalStore, Found, HitMetadata, Searchable, embed_lists
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.pipeline import Pipeline
from resift.plugins import load_reranker
from resift.protocols import Scorer
from resift.ranking.fusion.methods import fuse
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import arerank
from resift.resilience import CircuitBreaker
from resift.types import Hit, JsonMapping, JsonObject, Where

__all__ = [
    "ResiftDocumentEmbedder", "ResiftJoiner", "ResiftRanker", "ResiftRetriever", "ResiftTextEmbedder", "haystack_store",
]  # fmt: skip
__path__: list[str] = []  # pipelines saved by 0.2 name modules such as resift.integrations.haystack.ranker

Documents = dict[str, list[Document]]  # the output of a ranker, a retriever or a joiner: {"documents": …}


class Serializable:
    """A component that is serialized as the arguments listed in `saved`, which are also its attributes."""

    saved: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> JsonObject:
        """Return the dictionary that Haystack saves."""
        data: JsonObject = default_to_dict(self, **{name: getattr(self, name) for name in self.saved})
        return data

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Create the component from the output of `to_dict`."""
        loaded: Self = default_from_dict(cls, {**data, "type": f"{cls.__module__}.{cls.__name__}"})
        return loaded


@component
class ResiftRanker(Serializable):
    """Reranks documents and keeps the best `top_k`. Does not raise if a reranker fails.

    `reranker` is the name of any Resift reranker ("voyage", "tei", …), configured by `reranker_options`. `scorer`
    takes an object instead, which cannot be saved as YAML. The API key of a hosted reranker comes from its environment
    variable. Documents are copied; their meta gets `relevance_score`, `tier`, `degraded`, `reason` and `why`.
    """

    saved = ("model", "top_k", "deadline_s", "meta_fields_to_embed", "reranker", "reranker_options")

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        top_k: int = 10,
        deadline_s: float | None = None,
        meta_fields_to_embed: list[str] | None = None,
        reranker: str | None = None,
        reranker_options: JsonMapping | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1.")
        self.model = model
        self.top_k = top_k
        self.deadline_s = deadline_s
        self.meta_fields_to_embed = list(meta_fields_to_embed or ())
        self.reranker = reranker
        self.reranker_options = dict(reranker_options or {})
        self.scorer = scorer
        self._loaded: Scorer | None = scorer

    def warm_up(self) -> None:
        """Load the reranker in advance, so the first query is not slowed down."""
        if self._load_scorer() is None:
            run_sync(arerank("warm up", ["warm up"], model=self.model))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> Documents:
        """Return the best documents, best first."""
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1.")
        if not documents:
            return {"documents": []}
        texts = []
        for document in documents:
            fields = [document.meta.get(name) for name in self.meta_fields_to_embed]
            text = "\n".join([*(str(value) for value in fields if value), document.content or ""])
            texts.append((text, document.meta))
        options: JsonObject = {"k": top_k or self.top_k, "model": self.model, "scorer": self._load_scorer()}
        options |= {"source": "haystack", "deadline_s": self.deadline_s}
        reranked = await adapters.rerank_items(query, documents, texts, **options)
        return {"documents": [_add_metadata(document, added) for document, added in reranked]}

    run = sync_method(run_async, "run")

    def _load_scorer(self) -> Scorer | None:
        if self._loaded is None and self.reranker is not None:
            self._loaded = load_reranker(self.reranker, **self.reranker_options)
        return self._loaded

    def to_dict(self) -> JsonObject:
        """Return the dictionary that Haystack saves."""
        if self.scorer is not None:
            raise InputError("A ResiftRanker with a scorer object cannot be saved; pass reranker=NAME instead.")
        return Serializable.to_dict(self)  # `component` creates a new class, which breaks super()


@component
class ResiftRetriever(Serializable):
    """Searches `source` and returns the best `top_k` documents.

    `source` is an Index, a Pipeline, stores, or the path of an index file. Only a path can be saved with a
    pipeline. `filters` use Haystack's syntax (comparisons joined by AND) or Resift's: {"page": [1, 2]}.
    """

    saved = ("source", "top_k", "filters", "deadline_s")

    def __init__(
        self,
        source: str | os.PathLike[str] | Searchable,
        *,
        top_k: int = 10,
        filters: JsonObject | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self.source = os.fspath(source) if isinstance(source, os.PathLike) else source
        self.top_k = top_k
        self.filters = filters
        self.deadline_s = deadline_s
        self._index: Index | None = None
        self._pipeline: Pipeline | None = None

    def warm_up(self) -> None:
        """Open the index."""
        self._open()

    def close(self) -> None:
        """Close the index, if this component opened it."""
        if self._index is not None:
            self._index.close()
        self._index = self._pipeline = None

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: JsonObject | None = None, top_k: int | None = None) -> Documents:
        """Return the best documents, best first."""
        k = self.top_k if top_k is None else top_k
        where = _convert_filters(self.filters if filters is None else filters)
        ranking = await self._open().search(query, k=k, where=where, deadline_s=self.deadline_s)
        found = [Document(id=hit.id, content=hit.text, meta=dict(hit.metadata)) for hit in ranking]
        added = adapters.hits_with_metadata(ranking)
        return {"documents": [_add_metadata(document, more) for document, (_, more) in zip(found, added, strict=True)]}

    run = sync_method(run_async, "run")

    def _open(self) -> Pipeline:
        if self._pipeline is None:
            if isinstance(self.source, str):
                self._index = Index(self.source, read_only=True)
            self._pipeline = adapters.make_pipeline(self._index or self.source)
        return self._pipeline

    def to_dict(self) -> JsonObject:
        """Return the dictionary that Haystack saves."""
        if not isinstance(self.source, str):
            raise InputError(f"A ResiftRetriever over a {type(self.source).__name__} cannot be saved; pass a path.")
        return Serializable.to_dict(self)  # `component` creates a new class, which breaks super()


def _add_metadata(document: Document, metadata: HitMetadata) -> Document:
    score = metadata["relevance_score"]
    # An unscored document keeps its original score.
    new_score = document.score if score is None else score
    return replace(document, meta={**document.meta, **metadata}, score=new_score)


_OPERATORS = {"==": "=", "!=": "!=", "in": "=", "not in": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}


def _convert_filters(filters: JsonMapping | None) -> Where | None:
    """Convert Haystack's comparisons, joined by AND, to a `where` filter. A `where` filter is returned unchanged."""
    if filters is None or not ({"operator", "conditions"} & filters.keys()):
        return filters
    where: dict[str, JsonObject] = {}
    for condition in _flatten_conditions(filters):
        name = str(condition["field"]).removeprefix("meta.")
        tests = where.setdefault(name, {})
        test = _OPERATORS.get(condition["operator"])
        if test is None:
            raise InputError(f"filters has the operator {condition['operator']!r}; supported: {', '.join(_OPERATORS)}.")
        if test in tests:
            raise InputError(f"filters has {condition['operator']} for {name!r} twice; use it once.")
        tests[test] = condition["value"]
    return where


def _flatten_conditions(filters: JsonMapping) -> list[JsonMapping]:
    if "conditions" not in filters:
        missing = [key for key in ("field", "operator", "value") if key not in filters]
        if missing:
            raise InputError(f"A condition in filters has no {missing[0]!r}; set field, operator and value.")
        return [filters]
    if filters.get("operator") != "AND":
        problem = f"filters joins conditions with {filters.get('operator')!r}; stores support only AND"
        raise InputError(f"{problem}. For alternative values of one field, use the operator 'in'.")
    return [each for condition in filters["conditions"] for each in _flatten_conditions(condition)]


@component
class ResiftJoiner(Serializable):
    """Fuses lists with one of Resift's methods (`method="rrf"`) and its options (`k_param`, `weights`, …).

    Ties are sorted by id. The result does not depend on the order in which the lists arrive. Documents get the
    fused score, and `why` in their meta.
    """

    saved = ("method", "top_k", "options")

    def __init__(self, method: str = "rrf", *, top_k: int | None = None, options: JsonMapping | None = None) -> None:
        self.method = method
        self.top_k = top_k
        self.options = dict(options or {})
        # Validate the options early. Weights refer to lists, which are not known yet.
        options_to_check = {name: value for name, value in self.options.items() if name != "weights"}
        fuse({}, k=0, method=method, **options_to_check)

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: Variadic[list[Document]], top_k: int | None = None) -> Documents:
        """Return the fused documents without duplicates, best first."""
        first: dict[str, Document] = {}
        lists: dict[str, list[Hit]] = {}
        for name, group in ((f"list-{number}", group) for number, group in enumerate(documents, start=1)):
            lists[name] = [Hit(each.id, each.content or "", each.score, name) for each in group]
            for document in group:
                first.setdefault(document.id, document)
        ranking = fuse(lists, k=self.top_k if top_k is None else top_k, method=self.method, **self.options)
        added = adapters.hits_with_metadata(ranking)
        return {"documents": [_add_metadata(first[hit.id], more) for hit, more in added]}

    run = sync_method(run_async, "run")


class _LocalEmbedder(Serializable):
    saved = ("model",)

    def __init__(self, model: str = DEFAULT_EMBEDDER) -> None:
        self.model = model
        self._embedder = Embedder(model)

    def warm_up(self) -> None:
        """Load the model in advance, so the first call is not slowed down."""
        _ = self._embedder.dimension


@component
class ResiftTextEmbedder(_LocalEmbedder):
    """Embeds a query with the model's query prefix."""

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, list[float]]:
        """Return the embedding of the text."""
        return {"embedding": (await embed_lists(self._embedder, [text], "query"))[0]}

    run = sync_method(run_async, "run")


@component
class ResiftDocumentEmbedder(_LocalEmbedder):
    """Embeds documents. Returns copies with the vectors added."""

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> Documents:
        """Return copies of the documents with their embeddings."""
        vectors = await embed_lists(self._embedder, [document.content or "" for document in documents], "document")
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}

    run = sync_method(run_async, "run")


@runtime_checkable
class Retriever(Protocol):
    """A Haystack retriever component."""

    def run(self, *args: Any, **kwargs: Any) -> object:
        """Return {"documents": …}."""


def haystack_store(
    retriever: Retriever | DocumentStore,
    *,
    text_embedder: Any = None,
    name: str = "",
    breaker: CircuitBreaker | None = None,
) -> ExternalStore:
    """Return a store that uses a keyword retriever, or a vector retriever with its query embedder.

    Of document stores, only Haystack's in-memory store is accepted; for others, pass their retriever.
    """
    if isinstance(retriever, InMemoryDocumentStore):
        retriever = InMemoryBM25Retriever(retriever)
    if not isinstance(retriever, Retriever):
        raise InputError(f"A {type(retriever).__name__} cannot be searched; pass a retriever instead.")
    parameters = inspect.signature(retriever.run).parameters
    if "query_embedding" in parameters and text_embedder is None:
        raise InputError("This retriever takes a query_embedding; pass a text_embedder.")

    async def fetch(query: str, k: int) -> Sequence[Found]:
        inputs: JsonObject = {"top_k": k} if "top_k" in parameters else {}
        if "query_embedding" in parameters:
            inputs["query_embedding"] = (await _run_component(text_embedder, text=query))["embedding"]
        else:
            inputs["query"] = query
        documents = (await _run_component(retriever, **inputs))["documents"]
        return [Found(each.id, each.content or "", each.score, each.meta) for each in documents]

    return ExternalStore(name or type(retriever).__name__, fetch, breaker=breaker)


async def _run_component(target: Any, **inputs: object) -> JsonObject:
    """Run a component with its async method, or in a thread if it has none."""
    run_async = getattr(target, "run_async", None)
    output = await run_async(**inputs) if run_async else await asyncio.to_thread(target.run, **inputs)
    return dict(output)


# Component types of pipelines saved by 0.2. Remove in 0.4.
for _module, _component in (
    ("embedders", ResiftDocumentEmbedder), ("embedders", ResiftTextEmbedder), ("joiner", ResiftJoiner),
    ("ranker", ResiftRanker), ("retriever", ResiftRetriever),
):  # fmt: skip
    component.registry[f"{__name__}.{_module}.{_component.__name__}"] = _component
