"""Every door of the library refuses a wrong argument with an error of ours, or answers rightly."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from resift import (
    CrossEncoderReranker,
    Embedder,
    Hit,
    Index,
    MemoryStore,
    Pipeline,
    Ranking,
    RetrievalNode,
    RRFReranker,
    SQLiteStore,
    Tiered,
    TwoStage,
    fuse,
    load_reranker,
    rerank,
)
from resift.errors import ResiftError
from resift.pipeline import OverFetch, StoreRef
from resift.ranking.fusion import METHODS
from resift.ranking.shape import Blend, Guard, Precedence, Quota, Recovery
from resift.testing import FakeStore, OverlapScorer

VALUES = [
    None, "", " ", "x", "3", "\0", "\ud800", 0, -1, 2, 2.5, True, math.nan, math.inf, -math.inf, 1e308,
    10**400, b"x", [], [None], [1], ["a"], [[1]], (), {}, {"a": None}, {1: 2}, {"id": None},
    [{"id": math.nan}], [{"id": "a", "text": 3}], [{"id": "a", "score": 10**400}], set(), object(), int,
    Hit("a", "t"),
]  # fmt: skip

DOCUMENTS = ["alpha beta", "gamma"]
LISTS = {"one": ["a", "b"], "two": ["b", "c"]}
SCORED = [[Hit("a", "", 0.9), Hit("b", "", 0.2)], [Hit("b", "", 0.5)]]
SCORER = OverlapScorer()


def store() -> FakeStore:
    return FakeStore([Hit("a", "alpha"), Hit("b", "beta")])


def stored(method: str):
    def call(**options):
        return asyncio.run(getattr(MemoryStore(), method)(**options))

    return call


def search_store(**options) -> Ranking:
    own = {"query": "alpha", **options}
    return Pipeline(store()).rank(own.pop("query"), **own)


def built(**options) -> Ranking:
    return Pipeline(options.pop("stores", None) or store(), **options).rank("alpha")


RANKING = rerank("alpha", DOCUMENTS, scorer=SCORER)

DOORS = {
    "rerank": (
        lambda **options: rerank(**{"query": "alpha", "documents": DOCUMENTS, "scorer": SCORER, **options}),
        ["query", "documents", "k", "deadline_s", "missing_text", "text_keys", "scorer"],
    ),
    "rerank with a model": (lambda **options: rerank("q", [], **options), ["model", "folder"]),
    "pipeline": (
        built,
        ["stores", "fuse", "gate", "rerank", "guard", "shape", "k", "deadline_s", "timeout_s", "capabilities",
         "sink", "clock", "fetch"],
    ),
    "search": (search_store, ["query", "k", "deadline_s", "where", "section"]),
    "Pipeline.default": (lambda store: Pipeline.default(store, rerank=False), ["store"]),
    "Pipeline.from_yaml": (Pipeline.from_yaml, ["path"]),
    "Pipeline.from_config": (Pipeline.from_config, ["config"]),
    "StoreRef": (lambda **options: Pipeline(StoreRef(**{"store": store(), **options})),
                 ["store", "k", "timeout_s", "cypher"]),
    "RetrievalNode": (lambda **options: RetrievalNode(**{"stores": [store()], "k": 3, **options}),
                      ["stores", "k"]),
    "TwoStage": (lambda **options: TwoStage(**{"embeddings": store(), "similarity": SCORER, **options}),
                 ["embeddings", "similarity"]),
    "Tiered": (lambda **options: Tiered(**{"primary": SCORER, "fallback": SCORER, **options}),
               ["primary", "fallback", "breaker", "budget"]),
    "load_reranker": (lambda **options: load_reranker(options["name"]), ["name"]),
    "RRFReranker": (RRFReranker, ["k_param", "weights", "sources", "dialect"]),
    "Hit": (lambda **options: Hit(**{"id": "a", **options}), ["id", "text", "score", "source"]),
    "Ranking": (Ranking, ["hits"]),
    "Ranking.from_json": (Ranking.from_json, ["text"]),
    "why": (RANKING.why, ["id"]),
    "path": (RANKING.path, ["id"]),
    "public": (lambda key: Ranking((Hit("a", metadata={key: 1} if key.__hash__ else {}),)).public(), ["key"]),
    "MemoryStore": (MemoryStore, ["mode"]),
    "add": (stored("add"), ["documents"]),
    "delete": (stored("delete"), ["ids"]),
    "get": (stored("get"), ["ids"]),
    "search of a store": (lambda **options: stored("search")(**{"query": "x", "k": 3, **options}),
                          ["query", "k", "where"]),
    "SQLiteStore": (SQLiteStore, ["path"]),
    "Index": (lambda path: Index(path, read_only=True, text_only=True), ["path"]),
    "Embedder": (Embedder, ["model_name"]),
    "CrossEncoderReranker": (CrossEncoderReranker, ["model_name"]),
    "OverFetch": (OverFetch, ["factor", "minimum", "cap"]),
    "Blend": (Blend, ["weight", "method", "temperature", "neighbors"]),
    "Guard": (Guard, ["firsts", "margin", "opinions"]),
    "Precedence": (Precedence, ["order", "margin", "scales"]),
    "Quota": (lambda **options: Quota(**{"key": "x", **options}), ["at_most", "share", "at_least"]),
    "Recovery": (Recovery, ["limit"]),
    **{
        f"fuse by {method}": (
            lambda method=method, **options: fuse(**{"lists": SCORED, "method": method, **options}),
            ["lists", "k", "weights", "sources", "k_param", "dialect", "normalize", "phi", "epsilon"],
        )
        for method in METHODS
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("door", DOORS)
def test_a_bad_call_raises_our_error_or_answers_correctly(door, tmp_path, monkeypatch):
    """Each argument of each door gets every value; whatever comes out raw is a hole."""
    monkeypatch.chdir(tmp_path)
    call, names = DOORS[door]
    raw = []
    for name in names:
        for value in VALUES:
            try:
                call(**{name: value})
            except ResiftError:
                continue
            except Exception as exc:
                raw.append(f"{name}={value!r}: {type(exc).__name__}: {exc}")
    assert raw == []


def test_scores_are_never_infinite():
    """Scores near the largest float add up to an error or a finite score."""
    huge = [[Hit("a", "", 1e308)], [Hit("a", "", 1e308)]]
    for method in METHODS:
        try:
            ranking = fuse(huge, method=method)
        except ResiftError:
            continue
        assert all(math.isfinite(hit.score) for hit in ranking)


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "3", '{"hits": 3}', '{"hits": [{}]}', '{"trace": [{"kind": 3}]}', '{"hits": [{"id": 1}]}',
     "[" * 10_000, '{"unscored": 3}'],
)  # fmt: skip
def test_json_that_is_not_a_ranking_is_rejected(text):
    """Whatever stands in a file becomes a ranking or one clear error."""
    with pytest.raises(ResiftError):
        Ranking.from_json(text)
    assert Ranking.from_json(json.dumps(RANKING.to_dict())) == RANKING


def test_no_repr_shows_a_document_or_a_question():
    """Logs and tracebacks print reprs; ids are all they get."""
    from resift.pipeline import Pool

    hit = Hit("a", "CANARY text", 1.0, "docs", {"body": "CANARY metadata"})
    ranking = Ranking((hit,), cut=(hit,))
    pool = Pool(query="CANARY question", k=3, hits=(hit,), lists={"docs": (hit,)}, where={"x": "CANARY"})
    for value in (hit, ranking, pool, [hit], {"a": ranking}, ranking.trace):
        assert "CANARY" not in repr(value)
        assert value is ranking or "CANARY" not in str(value)  # print(ranking) shows its texts
    assert "'a'" in repr(hit)
