"""What is evaluated: pipelines that need no file (bm25, dense, rrf, …) and pipeline files.

In a pipeline file, `path: ${RESIFT_COLLECTION}` is the index of the collection that is being evaluated.
Every other store is used as it is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from resift.errors import InputError, did_you_mean
from resift.ingest.opening import open_index
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank
from resift.plugins import load_reranker
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.rerankers.late_interaction import DEFAULT_MODEL as LATE_INTERACTION_MODEL
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonMapping, JsonObject
from resift.validation import check_arguments

VARIABLE = "RESIFT_COLLECTION"
RERANK_DEPTH = 20
FUSED_DEPTH = 500
"""How deep the lists of rrf and linear are. Published figures fuse 1000: much the same, at twice the cost."""

Opened = Callable[..., Pipeline]
_RERANKED_BY = {
    "cross-encoder": (DEFAULT_MODEL,),
    "default": (DEFAULT_MODEL,),
    "late-interaction": (LATE_INTERACTION_MODEL,),
}
_EXACT = {"exact": True, "approximate": False}
_MODES = {"bm25": {"mode": "text"}, "dense": {"mode": "vector"}}


@dataclass(frozen=True, slots=True)
class Subject:
    """One pipeline to evaluate: `identity` is everything that could change its answers."""

    name: str
    identity: JsonMapping
    needs_corpus: bool
    needs_vectors: bool
    open: Opened
    stores: tuple[JsonMapping, ...] = ()
    """The `stores:` of a pipeline file that searches the same."""
    models: tuple[str, ...] = ()
    """The embedder and the reranker, by the names of their models."""


@check_arguments
def subject_named(text: str) -> Subject:
    """Return the built-in pipeline of that name, or the pipeline of that file.

    `NAME:approximate` finds vectors by their bit codes at any size, `NAME:exact` compares all of them.
    """
    name, colon, how = text.partition(":")
    if name in BUILT_IN and (how in _EXACT if colon else True):
        exact = {"exact": _EXACT[how]} if colon else {}
        identity = {
            "built-in": name,
            **({"lists": FUSED_DEPTH} if name in ("linear", "rrf") else {}),
            **exact,
        }
        store = {"name": "collection", "kind": "sqlite", "path": f"${{{VARIABLE}}}"}
        return Subject(
            text,
            identity,
            needs_corpus=True,
            needs_vectors=name != "bm25",
            open=partial(BUILT_IN[name], **exact),
            stores=({**store, **_MODES.get(name, {}), **exact},),
            models=() if name == "bm25" else (DEFAULT_EMBEDDER, *_RERANKED_BY.get(name, ())),
        )
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or _exists(path):
        return _from_file(path)
    raise InputError(f"Unknown pipeline {text!r}. {did_you_mean(text, BUILT_IN)} Or name a .yaml file.")


def subject_of(path: Path) -> Subject:
    """Return the pipeline of a file, or the default pipeline on an index."""
    if path.suffix in (".yaml", ".yml"):
        return _from_file(path)
    if not _exists(path):
        raise InputError(f"No such file: {path}. Name a pipeline file or an index.")
    section = {"name": path.stem, "kind": "sqlite", "path": str(path.absolute())}
    return Subject(
        path.stem,
        {"built-in": "default"},
        needs_corpus=False,
        needs_vectors=True,
        open=lambda _: Pipeline.default(open_index(path, read_only=True)),
        stores=(section,),
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def subjects_named(texts: list[str]) -> list[Subject]:
    """Return the pipelines, each under a name of its own."""
    subjects = [subject_named(text) for text in texts]
    names = [subject.name for subject in subjects]
    return [
        subject if names.count(subject.name) == 1 else replace(subject, name=f"{subject.name}#{at}")
        for at, subject in enumerate(subjects, start=1)
    ]


@contextmanager
def collection_at(index: Path | None) -> Iterator[None]:
    """Let `${RESIFT_COLLECTION}` stand for the index while a pipeline file is read."""
    before = os.environ.get(VARIABLE)
    if index is not None:
        os.environ[VARIABLE] = str(index.absolute())
    try:
        yield
    finally:
        if index is not None:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before


def _from_file(path: Path) -> Subject:
    from resift.config import inspect_yaml

    # Not expanded: the index does not exist yet, and the identity must not depend on where it lies.
    settings, problems = inspect_yaml(path, expand=False)
    problems.refuse()
    plain = settings.plain() if settings is not None else {}
    stores = [store for store in plain.get("stores", ()) if f"${{{VARIABLE}}}" in str(store.get("path", ""))]

    def opened(index: Path | None) -> Pipeline:
        with collection_at(index):
            return Pipeline.from_yaml(path)

    return Subject(
        path.stem,
        {"file": plain, "stores": _states(plain, path.absolute().parent)},
        needs_corpus=bool(stores),
        needs_vectors=any(
            store.get("embedder") != "none" and store.get("mode") != "text" for store in stores
        ),
        open=opened,
        stores=tuple(_from_anywhere(store, path.absolute().parent) for store in plain.get("stores", ())),
        models=_models(plain),
    )


def _models(plain: JsonMapping) -> tuple[str, ...]:
    """Return the models that a pipeline file names or takes by default."""
    stores = [store.get("embedder") for store in plain.get("stores", ())]
    embedders = [DEFAULT_EMBEDDER if name in ("auto", None) else name for name in stores if name != "none"]
    model = (plain.get("rerank") or {}).get("model")
    return tuple(dict.fromkeys([*embedders, *([model] if model else [])]))


def _from_anywhere(store: JsonMapping, folder: Path) -> JsonObject:
    """Return a store's section with a path that does not depend on where its file lies."""
    path = store.get("path")
    return dict(store) if not path or "${" in str(path) else {**store, "path": str(folder / str(path))}


def _states(plain: JsonMapping, folder: Path) -> JsonObject:
    """Return size and time of the store files: an index that changed gives other answers."""
    states = {}
    for store in plain.get("stores", ()):
        path = folder / os.path.expandvars(str(store.get("path", "")))
        if store.get("path") and path.is_file():
            state = path.stat()
            states[store["name"]] = [state.st_size, state.st_mtime_ns]
    return states


def _store(index: Path | None, exact: bool | None = None, *, vectors: bool = True) -> SQLiteStore:
    assert index is not None  # noqa: S101 - needs_corpus
    store = SQLiteStore(index, name="collection", read_only=True)
    if not vectors:
        return store
    built_with = store.facts().embedder
    store.release()
    return SQLiteStore(index, name="collection", embedder=Embedder(built_with), exact=exact, read_only=True)


def _bm25(index: Path | None, exact: bool | None = None) -> Pipeline:
    return Pipeline([_store(index, exact, vectors=False).text])


def _dense(index: Path | None, exact: bool | None = None) -> Pipeline:
    return Pipeline([_store(index, exact).vectors])


def _both(index: Path | None, exact: bool | None, **stages: Any) -> Pipeline:
    store = _store(index, exact)
    return Pipeline([store.text, store.vectors], **stages)


def _rrf(index: Path | None, exact: bool | None = None) -> Pipeline:
    return _both(index, exact, fetch=OverFetch(minimum=FUSED_DEPTH))


def _linear(index: Path | None, exact: bool | None = None) -> Pipeline:
    return _both(index, exact, fetch=OverFetch(minimum=FUSED_DEPTH), fuse=load_reranker("linear"))


def _cross_encoder(index: Path | None, exact: bool | None = None) -> Pipeline:
    return _both(index, exact, rerank=Rerank(load_reranker("cross-encoder"), depth=RERANK_DEPTH))


def _late_interaction(index: Path | None, exact: bool | None = None) -> Pipeline:
    return _both(index, exact, rerank=Rerank(load_reranker("late-interaction"), depth=RERANK_DEPTH))


def _default(index: Path | None, exact: bool | None = None) -> Pipeline:
    return Pipeline.default(_store(index, exact))


BUILT_IN: Mapping[str, Opened] = {
    "bm25": _bm25,
    "cross-encoder": _cross_encoder,
    "default": _default,
    "dense": _dense,
    "late-interaction": _late_interaction,
    "linear": _linear,
    "rrf": _rrf,
}
"""bm25: words; dense: vectors; rrf and linear (min-max): both, 500 deep, fused; cross-encoder and
late-interaction: the candidates of the default in the model's order; default: `Pipeline.default`, blended."""
