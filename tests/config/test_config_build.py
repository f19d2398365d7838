"""From a file to a working pipeline."""

from __future__ import annotations

import asyncio

import pytest

from resift.config import inspect_yaml, load_yaml, pipeline_from_yaml
from resift.errors import CapabilityError, ConfigError
from resift.pipeline import Pipeline, Rerank
from resift.pipeline.stages import Gate
from resift.protocols import display_name
from resift.ranking.shape import Blend, Precedence, ShapePolicy

STORE = "stores: [{name: docs, kind: sqlite, path: docs.db}]\n"


@pytest.fixture
def build(write):
    built = []

    def build(text, **options) -> Pipeline:
        pipe = Pipeline.from_yaml(write(text), **options)
        built.append(pipe)
        return pipe

    yield build
    for pipe in built:
        asyncio.run(pipe.close())


def test_the_smallest_file_searches(build):
    """A store is all that a pipeline needs; relative paths are relative to the file."""
    pipe = build(STORE)
    assert pipe.rank("breaker failures").ids[0] == "d1"
    assert (pipe.k, pipe.deadline_s, [ref.name for ref in pipe.stores]) == (10, None, ["docs"])


def test_every_core_key_reaches_the_pipeline(build):
    """k, deadline, fetch, capabilities, fusion and the store's own limits arrive."""
    pipe = build(
        """\
        stores:
          - name: docs
            kind: sqlite
            path: docs.db
            k: 7
            timeout_s: 1.5
        k: 2
        deadline_s: 3
        fetch: {factor: 2, minimum: 5, cap: 9}
        capabilities: [db.docs:read]
        fusion: {method: rrf, k_param: 10, weights: {docs: 2}}
        gate: {signal: docs, floor: -1, top_k: 3}
        """
    )
    assert (pipe.k, pipe.deadline_s, pipe.capabilities, pipe.fetch(1)) == (2, 3, ["db.docs:read"], 5)
    assert (pipe.stores[0].k, pipe.stores[0].timeout_s) == (7, 1.5)
    assert isinstance(pipe.stages[1], Gate)
    ranking = pipe.rank("fusion adds rank")
    assert ranking[0].score == pytest.approx(2 / 11)
    assert ranking.replay() == ranking.ids


def test_options_win_over_the_file(build):
    """An explicit argument beats the configuration."""
    assert build(STORE + "k: 5\n", k=1).k == 1


def test_a_missing_capability_rejects_the_search(build):
    """Granted capabilities in the file are checked before any I/O."""
    with pytest.raises(CapabilityError, match=r"db\.docs:read"):
        build(STORE + "capabilities: [db.other:read]\n").rank("breaker")


def test_weights_survive_a_store_that_finds_nothing(build):
    """A weight for a store that gives an empty list is no error at search time."""
    pipe = build(
        """\
        stores:
          - {name: docs, kind: sqlite, path: docs.db}
          - {name: more, kind: sqlite, path: docs.db}
        fusion: {weights: {docs: 1, more: 2}}
        """
    )
    ranking = pipe.rank("zebra giraffe breaker", k=1)
    assert not ranking.degraded
    empty = pipe.rank("zebra giraffe")
    assert (empty.ids, empty.degraded) == ([], False)


def test_the_weight_of_a_store_applies_to_both_of_its_views():
    """`docs: 2` weighs docs.text and docs.vectors; a view's own weight wins."""
    from resift.config.build import store_weight

    weights = {"docs": 2.0, "docs.text": 0.5}
    assert [store_weight(weights, name) for name in ("docs", "docs.text", "docs.vectors", "other")] == [2, 0.5, 2, 1]


def test_a_signal_without_scores_is_rejected(write):
    """gate.signal must be a list that really exists: a store of words alone has no vectors."""
    file = write(STORE + "gate: {signal: docs.vectors}\n")
    with pytest.raises(ConfigError, match=r"pipeline.yaml:2: gate.signal is 'docs.vectors'"):
        pipeline_from_yaml(file)


@pytest.mark.parametrize("key", ["", ", api_key_env: VOYAGE_API_KEY"])
def test_a_scorer_without_its_key_is_skipped_and_the_ranking_is_degraded(build, monkeypatch, key):
    """An unset variable means no reranking, not an error; but never in silence."""
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    alone = build(STORE + f"rerank: {{kind: voyage{key}}}\n").rank("breaker")
    assert alone.ids == ["d1"]
    assert (alone.degraded, alone.reason) == (True, "rerank: skipped, VOYAGE_API_KEY is not set")


def test_a_scorer_that_is_switched_off_does_not_degrade_the_ranking(build, monkeypatch):
    """A section that is set to false is off."""
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    alone = build(STORE + "rerank: {kind: voyage, cross_encoder_reranking_enabled: false}\n")
    assert len(alone.stages) == 1
    assert not alone.rank("breaker").degraded


def test_tiers_are_built_with_breaker_and_budget(build, monkeypatch):
    """The first tier with its breaker, then the fallback; capabilities follow from the tiers."""
    monkeypatch.setenv("VOYAGE_API_KEY", "not-a-real-key")
    pipe = build(
        STORE
        + """\
rerank:
  depth: 30
  tiers:
    - kind: tei
      base_url: http://127.0.0.1:9
      allow_loopback: true
    - kind: voyage
      model: rerank-2.5
      api_key_env: VOYAGE_API_KEY
  breaker: {failure_threshold: 2, cooldown_s: 5}
  budget: {absolute_floor_s: 0.1}
"""
    )
    [stage] = [stage for stage in pipe.stages if isinstance(stage, Rerank)]
    assert stage.depth == 30
    assert [tier.name for tier in stage.scorer.tiers] == ["tei", "voyage"]
    assert stage.scorer.breaker is not None
    assert set(pipe.requires) == {"db.docs:read", "net.tei", "net.voyage"}
    assert "not-a-real-key" not in repr(vars(stage.scorer.tiers[1].scorer))


def test_guard_is_on_with_a_reranker_unless_switched_off(build):
    """Reranking comes with blend and do-no-harm; each can be switched off."""
    plain = build(STORE + "rerank: {kind: semantic-bm25}\n")
    assert [display_name(stage) for stage in plain.stages] == ["fuse", "rerank", "guard"]
    assert plain.stages[-1].policy == ShapePolicy()
    off = build(STORE + "rerank: {kind: semantic-bm25}\nguard: {blend: false, do_no_harm: false}\n")
    assert (off.stages[-1].policy.blend, off.stages[-1].policy.guard) == (None, None)
    assert [display_name(stage) for stage in build(STORE).stages] == ["fuse"]


def test_every_stage_of_the_flow_from_one_file(build):
    """Stores, fusion, gate, rerank, guard and shape in one file; the trace replays."""
    pipe = build(
        STORE
        + """\
fusion: {method: comb-sum, normalize: min-max}
gate: {floors: {risk_market: 0.14}, signal: docs, section: risk_market, rerank_top_n: 1}
rerank:
  tiers:
    - kind: semantic-bm25
      semantic_weight: 0
      bm25_weight: 1
guard: {weight: 0.5, method: rank, firsts: 1}
shape:
  precedence: {order: [USER, PDF], margin: 0.02, scales: {semantic-bm25: 0.5}}
  fold: 1
  mmr: 0.9
  quotas:
    - {key: document, share: 0.5, absent: id}
  recovery: {limit: 2, values: [B], survivors: {risk_market: {PDF: 1}}}
"""
    )
    assert [display_name(stage) for stage in pipe.stages] == ["fuse", "gate", "rerank", "shape"]
    policy = pipe.stages[-1].policy
    assert policy.precedence == Precedence(order=("USER", "PDF"), margin=0.02, scales={"semantic-bm25": 0.5})
    assert (policy.blend, policy.fold, policy.mmr) == (Blend(weight=0.5, method="rank"), 1, 0.9)
    ranking = pipe.rank("the breaker and the question", k=2)
    assert not ranking.degraded, ranking.reason
    assert ranking.replay() == ranking.ids
    assert len(ranking) == 2


def test_models_and_embedders_reach_the_scorers(build):
    """`model` and `embedder` of a scorer are those of its constructor."""
    pipe = build(
        STORE
        + """\
rerank:
  tiers:
    - {kind: cross-encoder, model: cross-encoder/ms-marco-MiniLM-L-12-v2, max_windows: 2}
    - {kind: semantic-bm25, embedder: BAAI/bge-small-en-v1.5}
  breaker: {failure_threshold: 1}
"""
    )
    first, last = pipe.stages[1].scorer.tiers
    assert first.scorer.model_name == "cross-encoder/ms-marco-MiniLM-L-12-v2"
    assert first.breaker.name == "cross-encoder"
    assert last.scorer.name == "semantic-bm25"


def test_tiers_without_any_key_skip_reranking(build, monkeypatch):
    """Where every tier is left out, the fused order is the answer, and it says what is missing."""
    for name in ("VOYAGE_API_KEY", "JINA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    pipe = build(STORE + "rerank: {tiers: [{kind: voyage}, {kind: jina}]}\n")
    assert pipe.rank("breaker").reason == ("rerank: skipped, VOYAGE_API_KEY is not set, JINA_API_KEY is not set")


@pytest.mark.slow
def test_a_missing_api_key_of_a_store_is_a_mistake(write, monkeypatch):
    """A store cannot be left out silently: its unset variable is an error with the line."""
    pytest.importorskip("qdrant_client", reason="needs resift[qdrant]")
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    store = "{name: q, kind: qdrant, url: 'http://127.0.0.1:9', api_key_env: QDRANT_API_KEY, embedder: %s}"
    file = write("stores:\n  - " + store % "BAAI/bge-small-en-v1.5" + "\n")
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:2: QDRANT_API_KEY is not set"):
        pipeline_from_yaml(file)


def test_build_errors_name_the_section(write):
    """What only construction can find still has file and line."""
    file = write("stores:\n  - {name: docs, kind: sqlite, path: pipeline.yaml}\n")
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:2: "):
        pipeline_from_yaml(file)


def test_stores_are_closed_if_the_build_fails(write, monkeypatch):
    """Where a later section cannot be built, stores opened before are closed again."""
    from resift.stores.sqlite import SQLiteStore

    released = []
    monkeypatch.setattr(SQLiteStore, "release", lambda self: released.append(self.name))
    with pytest.raises(ConfigError, match="has no scores"):
        pipeline_from_yaml(write(STORE + "gate: {signal: docs.text}\n"))
    assert released[-1] == "docs"


def test_variables_in_paths_are_expanded(build, folder, monkeypatch):
    """${VARIABLES} work in paths."""
    monkeypatch.setenv("RESIFT_TEST_FOLDER", str(folder))
    pipe = build("stores: [{name: docs, kind: sqlite, path: '${RESIFT_TEST_FOLDER}/docs.db'}]\n")
    assert pipe.rank("breaker").ids == ["d1"]


def test_from_config_is_the_same_as_from_yaml(folder, monkeypatch):
    """A dict with the same keys makes the same pipeline."""
    monkeypatch.chdir(folder)
    pipe = Pipeline.from_config({"stores": [{"name": "docs", "kind": "sqlite", "path": "docs.db"}], "k": 1})
    assert pipe.rank("breaker").ids == ["d1"]
    asyncio.run(pipe.close())


def test_shown_settings_keep_variables_as_written(write):
    """Showing a configuration never reveals the value of a variable."""
    file = write("stores: [{name: docs, kind: sqlite, path: '${RESIFT_ANY}/docs.db'}]\n")
    settings, problems = inspect_yaml(file, expand=False)
    assert problems.found == []
    assert settings.plain()["stores"][0]["path"] == "${RESIFT_ANY}/docs.db"


def test_settings_remember_defaults(write):
    """Unset keys have the default of the table."""
    settings = load_yaml(write(STORE + "rerank: {kind: cross-encoder}\n"))
    assert (settings["k"], settings["rerank"]["depth"], settings["gate"]) == (10, None, None)


@pytest.mark.parametrize(
    ("extra", "method"),
    [
        ("", "weighted"),
        ("fusion:\n", "weighted"),
        ("fusion: {weights: {docs: 2}}\n", "weighted"),
        ("fusion: {method: rrf}\n", "rrf"),
        ("fusion: {k_param: 10}\n", "rrf"),
        ("fusion: {dialect: elasticsearch}\n", "rrf"),
        ("gate: {floor: 0.01}\n", "rrf"),
        ("gate: {signal: score}\n", "rrf"),
        ("gate: {signal: docs, floor: 1}\n", "weighted"),
        ("gate: {floor: 0.01}\nfusion: {method: weighted}\n", "weighted"),
    ],
)
def test_a_file_without_a_fusion_method_uses_that_of_the_default_pipeline(write, extra, method):
    """RRF stays where the file was written for RRF: its options, or a gate on fused scores."""
    assert load_yaml(write(STORE + extra))["fusion"]["method"] == method


def test_a_gate_on_fused_scores_keeps_its_meaning(build):
    """A threshold for RRF scores (1/61 for the first place) drops what it dropped before."""
    query = "the question and the rank"
    fused = build(STORE + "fusion: {method: rrf}\n").rank(query)
    assert len(fused) > 1
    gated = build(STORE + f"gate: {{floor: {fused[1].score - 1e-6}}}\n")
    assert gated.rank(query).ids == fused.ids[:2]


@pytest.mark.real_model
def test_a_minimal_file_ranks_like_the_default_pipeline(tmp_path):
    """Stores and rerank alone, and the file of `config init`, give the default's hits, scores and reasons."""
    pytest.importorskip("tokenizers")
    from resift import Index
    from resift.config.sections import default_file
    from resift.demo import passages, questions

    rows = [{**row, "text": str(row["text"])[:120]} for row in passages()[:110]]
    # A long text, of which the default reads some windows and not all.
    long = {"id": "long", "text": " ".join(str(row["text"]) for row in rows[:60])}
    minimal = tmp_path / "minimal.yaml"
    minimal.write_text(STORE + "rerank: {kind: cross-encoder}\n", encoding="utf-8")
    written = tmp_path / "written.yaml"
    written.write_text(default_file(), encoding="utf-8")
    unranked = tmp_path / "unranked.yaml"
    unranked.write_text(STORE, encoding="utf-8")
    with Index(tmp_path / "docs.db") as index, Index(tmp_path / "docs.db", rerank=False) as plain:
        index.add([*rows, long])
        for question, k in zip(questions()[:2], (3, 10), strict=True):
            expected = index.search(question.text, k=k)
            for file in (minimal, written):
                ranking = index.search(question.text, k=k, pipeline=file)
                assert [(hit.id, hit.score) for hit in ranking] == [(hit.id, hit.score) for hit in expected]
            expected = plain.search(question.text)
            ranking = plain.search(question.text, pipeline=unranked)
            assert [(hit.id, hit.score) for hit in ranking] == [(hit.id, hit.score) for hit in expected]
