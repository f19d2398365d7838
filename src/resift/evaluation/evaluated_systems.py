"""Systems to evaluate: built-in pipelines (bm25, dense, rrf, …) and pipeline files.

In a file, `path: ${RESIFT_COLLECTION}` is the index of the evaluated collection. Other stores are used as configured.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from resift._internal.environment import temporary_variable
from resift.errors import InputError, did_you_mean
from resift.ingest.indexing import open_index
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.fan_out import OverFetch
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank
from resift.plugins import load_reranker
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.rerankers.late_interaction import DEFAULT_MODEL as LATE_MODEL
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonMapping
from resift.validation import check_arguments

VARIABLE = "RESIFT_COLLECTION"
RERANK_DEPTH = 20
FUSED_DEPTH = 500
"""Depth of the lists fused by rrf and linear. Published results fuse 1000 hits, with nearly the same outcome."""

BUILT_IN = ("bm25", "cross-encoder", "default", "dense", "late-interaction", "linear", "rrf")
"""bm25: keyword search. dense: vector search. rrf and linear (min-max): fusion of both, with lists of 500 hits.
cross-encoder and late-interaction: the candidates of the default pipeline, ordered by the model.
default: `Pipeline.default`."""

_RERANKER_MODELS = {"cross-encoder": (DEFAULT_MODEL,), "default": (DEFAULT_MODEL,), "late-interaction": (LATE_MODEL,)}
_EXACT = {"exact": True, "approximate": False}
_MODES = {"bm25": {"mode": "text"}, "dense": {"mode": "vector"}}


@dataclass(frozen=True, slots=True)
class System:
    """A pipeline to evaluate. `identity` contains everything that could change its answers."""

    name: str
    identity: JsonMapping
    needs_corpus: bool
    needs_vectors: bool
    open: Callable[[Path | None], Pipeline]
    stores: tuple[JsonMapping, ...] = ()  # the `stores:` section of an equivalent pipeline file
    models: tuple[str, ...] = ()  # model names of the embedder and the reranker


def find_systems(texts: list[str]) -> list[System]:
    """Return the systems, each with a unique name."""
    systems = [find_system(text) for text in texts]
    names = [system.name for system in systems]
    return [
        system if names.count(system.name) == 1 else replace(system, name=f"{system.name}#{number}")
        for number, system in enumerate(systems, start=1)
    ]


@check_arguments
def find_system(text: str) -> System:
    """Return the built-in pipeline with this name, or the pipeline defined in this file.

    `NAME:approximate` searches vectors by their bit codes, and `NAME:exact` compares all vectors.
    """
    name, colon, mode = text.partition(":")
    if name in BUILT_IN and (mode in _EXACT if colon else True):
        exact = {"exact": _EXACT[mode]} if colon else {}
        depth = {"lists": FUSED_DEPTH} if name in ("linear", "rrf") else {}
        store = {"name": "collection", "kind": "sqlite", "path": f"${{{VARIABLE}}}"}
        return System(
            text,
            {"built-in": name, **depth, **exact},
            needs_corpus=True,
            needs_vectors=name != "bm25",
            open=partial(_open_built_in, name, exact=_EXACT.get(mode)),
            stores=({**store, **_MODES.get(name, {}), **exact},),
            models=() if name == "bm25" else (DEFAULT_EMBEDDER, *_RERANKER_MODELS.get(name, ())),
        )
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or os.path.exists(path):
        return _read_pipeline_file(path)
    raise InputError(f"Unknown pipeline {text!r}. {did_you_mean(text, BUILT_IN)} Or pass a .yaml file.")


def system_from_file(path: Path) -> System:
    """Return the pipeline defined in a YAML file, or the default pipeline on an index file."""
    if path.suffix in (".yaml", ".yml"):
        return _read_pipeline_file(path)
    if not os.path.exists(path):
        raise InputError(f"No such file: {path}. Pass a pipeline file or an index.")
    return System(
        path.stem,
        {"built-in": "default"},
        needs_corpus=False,
        needs_vectors=True,
        open=lambda _: Pipeline.default(open_index(path, read_only=True)),
        stores=({"name": path.stem, "kind": "sqlite", "path": str(path.absolute())},),
    )


def _read_pipeline_file(path: Path) -> System:
    from resift.config import inspect_yaml

    # Do not expand variables: the index does not exist yet, and the identity must not depend on its path.
    settings, problems = inspect_yaml(path, expand=False)
    problems.raise_first()
    plain = settings.plain() if settings is not None else {}
    folder = path.absolute().parent
    stores: list[JsonMapping] = list(plain.get("stores", ()))
    on_corpus = [store for store in stores if f"${{{VARIABLE}}}" in str(store.get("path", ""))]
    embedders = [store.get("embedder") for store in stores]
    models = [DEFAULT_EMBEDDER if name in ("auto", None) else name for name in embedders if name != "none"]
    model = (plain.get("rerank") or {}).get("model")

    # A changed index returns other hits, so its size and modification time are part of the identity.
    states = {}
    for store in stores:
        file = folder / os.path.expandvars(str(store.get("path", "")))
        if store.get("path") and file.is_file():
            states[store["name"]] = [file.stat().st_size, file.stat().st_mtime_ns]

    def open_pipeline(index: Path | None) -> Pipeline:
        with temporary_variable(VARIABLE, None if index is None else str(index.absolute())):
            return Pipeline.from_yaml(path)

    return System(
        path.stem,
        {"file": plain, "stores": states},
        needs_corpus=bool(on_corpus),
        needs_vectors=any(store.get("embedder") != "none" and store.get("mode") != "text" for store in on_corpus),
        open=open_pipeline,
        stores=tuple(
            {**store, "path": str(folder / str(store["path"]))}
            if store.get("path") and "${" not in str(store["path"])
            else store
            for store in stores
        ),
        models=tuple(dict.fromkeys([*models, *([model] if model else [])])),
    )


def _open_built_in(name: str, index: Path | None, exact: bool | None = None) -> Pipeline:
    assert index is not None  # noqa: S101 - guaranteed by needs_corpus
    store = SQLiteStore(index, name="collection", read_only=True)
    if name == "bm25":
        return Pipeline([store.text])
    embedder = Embedder(store.metadata().embedder)
    store.release()
    store = SQLiteStore(index, name="collection", embedder=embedder, exact=exact, read_only=True)
    if name == "default":
        return Pipeline.default(store)
    if name == "dense":
        return Pipeline([store.vectors])
    if name in ("linear", "rrf"):
        fuse = {"fuse": load_reranker(name)} if name == "linear" else {}
        return Pipeline([store.text, store.vectors], fetch=OverFetch(minimum=FUSED_DEPTH), **fuse)
    return Pipeline([store.text, store.vectors], rerank=Rerank(load_reranker(name), depth=RERANK_DEPTH))
