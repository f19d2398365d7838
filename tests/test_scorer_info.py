"""Scorers describe themselves; blend, server and trace read the description and never the name."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

import resift
from resift import Hit, Ranking
from resift.deadline import Deadline
from resift.errors import InputError
from resift.models.registry import builtin_ids, builtin_spec
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank, Shape
from resift.protocols import describe_scorer
from resift.ranking.fusion.weighted import WeightedReranker
from resift.rerankers.cascade import CascadeReranker
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.hosted import HostedReranker
from resift.rerankers.late_interaction import LateInteractionReranker
from resift.rerankers.llm import LLMReranker
from resift.rerankers.rescore import rescore
from resift.rerankers.score_cache import CachedScorer, MemoryScores
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.rerankers.zero_shot import ZeroShotReranker
from resift.resilience.tiered import Tiered
from resift.server.rerank_routes import TokenCounter, score_normalizer
from resift.testing import FakeStore, OverlapScorer
from resift.types import ScorerInfo, Scores, StageKind

GERMAN = [
    f"Die Geschichte der Stadt {city} beginnt mit einer Burg, die über dem Fluss errichtet wurde und deren "
    "Mauern noch heute stehen."
    for city in ("Bern", "Basel", "Genf", "Chur", "Thun")
]
ENGLISH_MODEL = ScorerInfo(name="cross-encoder", score_scale="logit", languages=("en",))


class Described(OverlapScorer):
    """A scorer with a description of the test's choosing, called like the built-in cross-encoder."""

    def __init__(self, info=None, *, fails=False):
        super().__init__("cross-encoder", fails=fails)
        self.model_name = "mine"
        if info is not None:
            self.info = info


def hits(count=3):
    return [Hit(str(at), text) for at, text in enumerate(GERMAN[:count])]


def record_of(scorer):
    ranking = asyncio.run(rescore(scorer, "Geschichte der Stadt Bern", hits(), k=3))
    assert not ranking.degraded or ranking.tier == "fallback"
    return ranking.trace.by_kind(StageKind.RERANK)[-1]


SPEC = builtin_spec("cross-encoder/ms-marco-MiniLM-L-12-v2")


def lazy_cross_encoder():
    return CrossEncoderReranker(lazy=True)


BUILT_IN = {
    "cross-encoder": (CrossEncoderReranker, "logit", ("en",), True),
    "lazy": (lazy_cross_encoder, "logit", ("en",), True),
    "cascade": (lambda: CascadeReranker(lazy_cross_encoder()), "logit", ("en",), False),
    "cached": (lambda: CachedScorer(lazy_cross_encoder(), MemoryScores()), "logit", ("en",), True),
    "late-interaction": (LateInteractionReranker, "unknown", ("en",), True),
    "zero-shot": (ZeroShotReranker, "probability", ("en",), True),
    "semantic-bm25": (SemanticBM25Reranker, "probability", "any", False),
    "hosted": (lambda: HostedReranker("tei", base_url="https://rerank.example.org"), "probability", "any", True),
    "llm": (lambda: LLMReranker("https://chat.example.org", "m", api_key="k"), "unknown", "any", False),
    "same tiers": (lambda: Tiered(lazy_cross_encoder(), lazy_cross_encoder()), "logit", ("en",), True),
    "other tiers": (lambda: Tiered(lazy_cross_encoder(), SemanticBM25Reranker()), "unknown", "any", False),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_scorer_describes_itself(name):
    """Scale, languages and pointwise as the models and providers have them, without loading a model."""
    make, score_scale, languages, pointwise = BUILT_IN[name]
    info = make().info
    assert (info.score_scale, info.languages, info.pointwise) == (score_scale, languages, pointwise)
    if name in ("cross-encoder", "shared", "cascade", "cached"):
        assert (info.max_length, info.model_digest) == (512, SPEC.pin(SPEC.onnx).sha256)


def test_every_pinned_model_declares_languages_and_scale():
    """The rows of the allowlist carry both; bge-reranker-base was trained on Chinese too."""
    specs = [builtin_spec(id) for id in builtin_ids()]
    assert all(spec.languages != "any" and "en" in spec.languages for spec in specs)
    assert {spec.score_scale for spec in specs if spec.kind == "cross-encoder"} == {"logit"}
    assert builtin_spec("BAAI/bge-reranker-base").languages == ("en", "zh")


def test_a_scorer_without_a_description_has_defaults():
    """A scorer of another package that knows nothing of descriptions works as before."""
    info = describe_scorer(OverlapScorer("mine"))
    assert info == ScorerInfo(name="mine", score_scale="unknown", languages="any", pointwise=True)
    record = record_of(OverlapScorer("mine"))
    assert (record.score_scale, record.languages) == ("unknown", "any")


def blend_weight(info):
    """Return how much the scorer counts on German texts in the default order."""
    documents = [{"id": str(at), "text": text} for at, text in enumerate(GERMAN)]
    pipeline = Pipeline(
        [FakeStore(documents, name="words")],
        fuse=WeightedReranker(),
        rerank=Rerank(Described(info)),
        guard=Shape(name="guard"),
    )
    ranking = pipeline.rank("Geschichte der Stadt Bern", k=3)
    [reranked] = ranking.trace.by_kind(StageKind.RERANK)
    [blended] = [record for record in ranking.trace if record.name == "blend"]
    return blended.weights["cross-encoder"], reranked


@pytest.mark.parametrize("languages", ["any", ("en", "de", "ja")])
def test_a_multilingual_cross_encoder_is_not_taken_for_an_english_one(languages):
    """Called `cross-encoder` too, it counts for more on German texts; the trace has its languages."""
    english, record = blend_weight(ENGLISH_MODEL)
    assert record.languages == ("en",)
    multilingual, record = blend_weight(replace(ENGLISH_MODEL, languages=languages))
    assert multilingual > english + 0.1
    assert (record.score_scale, record.languages) == ("logit", languages)


def test_the_server_reads_the_scale_and_not_the_name():
    """A cross-encoder that answers with probabilities keeps them; logits go through the logistic function."""

    def shown(info):
        counter = TokenCounter(Described(info))
        ranking = asyncio.run(rescore(counter, "Geschichte", hits(), k=3))
        return score_normalizer(ranking)(0.7)

    assert shown(replace(ENGLISH_MODEL, score_scale="probability")) == 0.7
    assert shown(replace(ENGLISH_MODEL, score_scale="cosine")) == 0.7
    assert shown(ENGLISH_MODEL) == pytest.approx(0.668, abs=1e-3)
    assert shown(None) == pytest.approx(0.668, abs=1e-3)


def test_the_record_describes_the_tier_that_ran():
    """Both ways: the primary while it works, the fallback when it fails."""
    multilingual = replace(ENGLISH_MODEL, languages=("en", "de"))
    fallback = Described(ScorerInfo(name="fallback", score_scale="cosine"))
    fallback.name = "fallback"
    ran = record_of(Tiered(Described(multilingual), fallback))
    assert (ran.score_scale, ran.languages) == ("logit", ("en", "de"))
    ran = record_of(Tiered(Described(multilingual, fails=True), fallback))
    assert (ran.score_scale, ran.languages) == ("cosine", "any")


def test_wrappers_pass_the_description_on():
    """Cached, cascaded, counted, and scores that name their scorer themselves."""
    multilingual = replace(ENGLISH_MODEL, languages=("en", "de"))
    cached = CachedScorer(Described(multilingual), MemoryScores(), pointwise=True)
    for scorer in (cached, cached, CascadeReranker(Described(multilingual)), TokenCounter(cached)):
        record = record_of(scorer)
        assert (record.score_scale, record.languages) == ("logit", ("en", "de"))

    class Wrapper:
        name = "wrapper"

        async def score(self, query, hits, *, deadline):
            return Scores([0.5] * len(hits), self.name, scorer=multilingual)

    assert record_of(Wrapper()).languages == ("en", "de")


@pytest.mark.parametrize(
    "wrong", [{"score_scale": "percent"}, {"languages": "en"}, {"languages": ()}, {"languages": (1,)}]
)
def test_a_wrong_description_is_refused(wrong):
    """When it is made, with what is allowed."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        ScorerInfo(name="x", **wrong)


def test_languages_may_be_a_list():
    """The description keeps a tuple: it is frozen and compared."""
    assert ScorerInfo(name="x", languages=["en", "de"]).languages == ("en", "de")


def test_rankings_stored_by_0_2_are_read():
    """Their evidence had sentences as keys, and no description of the scorer."""
    stored = {
        "hits": [{"id": "a"}],
        "trace": [
            {
                "kind": "fuse",
                "name": "weighted",
                "ids": ["a"],
                "weights": {"words": 1.0},
                "evidence": {"marks of code per word": 0.3, "letters per word": 4.5},
            },
            {"kind": "rerank", "name": "rerank", "source": "cross-encoder", "ids": ["a"], "scores": [1.0]},
        ],
    }
    ranking = Ranking.from_json(json.dumps(stored))
    assert dict(ranking.trace[0].evidence) == {"code_density": 0.3, "mean_word_length": 4.5}
    assert (ranking.trace[1].score_scale, ranking.trace[1].languages) == (None, None)
    assert resift.ranking.shape.blend(ranking).ids == ["a"]


def test_the_description_of_a_record_survives_json():
    """Both forms of languages."""
    for languages in ("any", ("en", "de")):
        ranking = asyncio.run(rescore(Described(replace(ENGLISH_MODEL, languages=languages)), "x", hits(), k=3))
        again = Ranking.from_json(ranking.to_json())
        assert again == ranking
        assert again.trace[-1].languages == languages


def test_scores_carry_the_description_of_a_local_model():
    """A caller that wraps a scorer finds it in the scores, not only on the scorer."""
    scorer = SemanticBM25Reranker()
    scores = asyncio.run(scorer.score("Bern", hits(), deadline=Deadline.never()))
    assert scores.scorer == scorer.info
