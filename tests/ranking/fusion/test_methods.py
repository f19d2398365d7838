"""Each method against numbers worked out by hand from its paper's formula."""

from __future__ import annotations

import math

import pytest

from resift import Hit
from resift.errors import InputError, InvalidHitError
from resift.ranking import fusion
from resift.ranking.evidence import mean_and_deviation, min_max, z_scores
from resift.ranking.fusion.lists import content_key
from resift.ranking.fusion.score_based import normalizer, rank_scale

# Two lists. words: a 10, b 6, c 2.   meaning: b 0.9, d 0.5.
WORDS = [Hit("a", "A", 10.0, "words"), Hit("b", "B", 6.0, "words"), Hit("c", "C", 2.0, "words")]
MEANING = [Hit("b", "B", 0.9, "meaning"), Hit("d", "D", 0.5, "meaning")]
LISTS = [WORDS, MEANING]


def scores(hits: list[Hit]) -> dict[str, float]:
    return {hit.id: hit.score for hit in hits}


GOLDEN = {
    # 1/61, 1/62 + 1/61, 1/63, 1/62
    "rrf": {"a": 1 / 61, "b": 1 / 61 + 1 / 62, "c": 1 / 63, "d": 1 / 62},
    # number of lists × Σ 1/rank²
    "isr": {"a": 1.0, "b": 2 * (1 / 4 + 1), "c": 1 / 9, "d": 1 / 4},
    # Σ 0.2 · 0.8^(rank-1)
    "rbc": {"a": 0.2, "b": 0.16 + 0.2, "c": 0.128, "d": 0.16},
    # 4 candidates; words gives 4, 3, 2 and d the remaining 1; meaning gives 4, 3 and a, c (2+1)/2 each
    "borda": {"a": 4 + 1.5, "b": 3 + 4, "c": 2 + 1.5, "d": 1 + 3},
    "comb-sum": {"a": 10.0, "b": 6.9, "c": 2.0, "d": 0.5},
    "comb-mnz": {"a": 10.0, "b": 13.8, "c": 2.0, "d": 0.5},
    "comb-anz": {"a": 10.0, "b": 3.45, "c": 2.0, "d": 0.5},
    "comb-max": {"a": 10.0, "b": 6.0, "c": 2.0, "d": 0.5},
    "comb-min": {"a": 10.0, "b": 0.9, "c": 2.0, "d": 0.5},
    # min-max: words 1, 0.5, 0; meaning 1, 0; each list weighs one half
    "linear": {"a": 0.5, "b": 0.25 + 0.5, "c": 0.0, "d": 0.0},
    "relative-score": {"a": 1.0, "b": 1.5, "c": 0.0, "d": 0.0},
    # words: mean 6, sample deviation 4: (x - (6-12)) / 24; meaning: mean 0.7, deviation 0.2828…
    "dbsf": {
        "a": 16 / 24,
        "b": 12 / 24 + (0.2 + 3 * math.sqrt(0.08)) / (6 * math.sqrt(0.08)),
        "c": 8 / 24,
        "d": (-0.2 + 3 * math.sqrt(0.08)) / (6 * math.sqrt(0.08)),
    },
}


@pytest.mark.parametrize("method", sorted(GOLDEN))
def test_golden_values(method):
    """Each function is its paper's formula."""
    fused = fusion.METHODS[method](LISTS)
    assert scores(fused) == pytest.approx(GOLDEN[method], abs=1e-12)


def test_log_odds_adds_evidence():
    """Σ ln(p/(1-p)); a list that lacks a hit counts as its lowest."""
    one = [Hit("a", score=0.8, source="s1"), Hit("b", score=0.5, source="s1")]
    two = [Hit("b", score=0.9, source="s2"), Hit("c", score=0.2, source="s2")]
    low1, low2 = 0.0, math.log(0.2 / 0.8)
    expected = {"a": math.log(4) + low2, "b": 0.0 + math.log(9), "c": low1 + low2}
    assert scores(fusion.log_odds([one, two])) == pytest.approx(expected)


@pytest.mark.parametrize("score", [-0.1, 1.5])
def test_log_odds_needs_probabilities(score):
    """Bad input: other scores are refused, with the next step."""
    with pytest.raises(InputError, match="Calibrate first"):
        fusion.log_odds([[Hit("a", score=score)]])
    with pytest.raises(InputError, match=r"epsilon is 0\.7"):
        fusion.log_odds([], epsilon=0.7)


def test_weights():
    """Weighted RRF by position and by source name."""
    expected = {"a": 2 / 61, "b": 2 / 62 + 1 / 61, "c": 2 / 63, "d": 1 / 62}
    assert scores(fusion.weighted_rrf(LISTS, [2, 1])) == pytest.approx(expected)
    assert fusion.weighted_rrf(LISTS, {"words": 2}) == fusion.weighted_rrf(LISTS, [2, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "1 weights for 2 lists"),
        ([1.0, -1.0], "A weight is -1.0"),
        ([1.0, math.nan], "A weight is nan"),
        ([0.0, 0.0], "Every weight is 0"),
        ({"wrods": 1.0}, "Did you mean 'words'"),
    ],
)
def test_invalid_weights_raise_input_error(weights, message):
    """Bad input: wrong length, negative, not finite, all zero, unknown source."""
    with pytest.raises(InputError, match=message):
        fusion.rrf(LISTS, weights=weights)


def test_metadata_comes_from_the_first_declared_source():
    """The declared order decides whose text and metadata stay, else the position of the lists."""
    lists = [
        [Hit("a", "from z", source="z", metadata={"m": "z"})],
        [Hit("a", "from b", source="b", metadata={"m": "b"})],
    ]
    assert fusion.rrf(lists)[0].metadata == {"m": "z"}
    assert fusion.rrf(lists[::-1])[0].metadata == {"m": "b"}
    assert fusion.rrf(lists, sources=["z", "b"])[0].metadata == {"m": "z"}
    assert fusion.rrf(lists[::-1], sources=["z", "b"])[0].text == "from z"


def test_a_hit_without_text_gets_it_from_a_later_source():
    """A vector index that returns bare ids does not blank a text that another store has."""
    lists = [[Hit("a", "", source="b", metadata={"m": 1})], [Hit("a", "", source="c")], [Hit("a", "words", source="z")]]
    fused = fusion.rrf(lists)[0]
    assert (fused.text, fused.metadata, fused.source) == ("words", {"m": 1}, "b")


def test_duplicates_count_once_at_their_best_rank_and_are_noted():
    """Others keep the rank at which they stood."""
    ranking = fusion.fuse({"s": ["a", "a", "b", "a"]})
    assert scores(ranking) == {"a": 1 / 61, "b": 1 / 63}
    assert "listed 3 times by s, counted once" in ranking.why("a")


def test_identity():
    """The same text under two ids, the same id in two sources, and a custom rule."""
    lists = [[Hit("a", "same", source="x")], [Hit("b", "same", source="y"), Hit("a", "other", source="y")]]
    assert [hit.id for hit in fusion.rrf(lists, identity="content")] == ["a", "a"]
    assert len(fusion.rrf(lists, identity="id-source")) == 3
    assert len(fusion.rrf(lists, identity=lambda hit: "one")) == 1
    assert content_key(Hit("a")) == "id:a"
    with pytest.raises(InputError, match="Did you mean 'content'"):
        fusion.rrf(lists, identity="contents")
    with pytest.raises(InputError, match="must return a string"):
        fusion.rrf(lists, identity=lambda hit: 3)


def test_duplicates_by_content():
    """Two ids of one text in one list count once."""
    assert len(fusion.rrf([[Hit("a", "same"), Hit("b", "same")]], identity="content")) == 1


@pytest.mark.parametrize("lists", [[], [[]], [[], []]])
@pytest.mark.parametrize("method", sorted(fusion.METHODS))
def test_empty_lists_fuse_to_an_empty_list(method, lists):
    """Bad input: empty lists are no error."""
    assert fusion.METHODS[method](lists) == []


@pytest.mark.parametrize(("k", "message"), [(-1, "k is -1"), (1.5, "k is 1.5"), (True, "k is True"), ("3", "k is '3'")])
def test_k_must_be_an_integer(k, message):
    """K < 0 is an error; k = 0 gives []."""
    with pytest.raises(InputError, match=message):
        fusion.rrf(LISTS, k=k)
    assert fusion.rrf(LISTS, k=0) == []


@pytest.mark.parametrize("k_param", [-1, "60", math.nan, True])
def test_k_param_must_be_a_number(k_param):
    """Bad input: the constant of RRF."""
    with pytest.raises(InputError, match="k_param is"):
        fusion.rrf(LISTS, k_param=k_param)


@pytest.mark.parametrize("phi", [0, 1, 2])
def test_phi_lies_between_0_and_1(phi):
    """Bad input: the persistence of RBC."""
    with pytest.raises(InputError, match="phi is"):
        fusion.rbc(LISTS, phi=phi)


@pytest.mark.parametrize(
    ("lists", "error", "message"),
    [
        ("ab", InputError, "rankings is a str"),
        ({"a": []}, InputError, "use resift.fuse"),
        (["ab"], InputError, "List 0 is a str"),
        ([{"id": "a"}], InputError, "List 0 is a dict"),
        ([[{"id": "a"}]], InvalidHitError, "List 0 starts with a dict"),
        ([[Hit("a"), "b"]], InvalidHitError, "contains a str"),
    ],
)
def test_anything_but_lists_of_hits_raises_input_error(lists, error, message):
    """Bad input: what is no list of lists of hits says what it is."""
    with pytest.raises(error, match=message):
        fusion.rrf(lists)


def test_normalizations():
    """min-max, z-score, rank and none; equal scores and huge scores are no trouble."""
    assert min_max([2.0, 4.0, 3.0]) == [0.0, 1.0, 0.5]
    assert min_max([5.0, 5.0]) == [1.0, 1.0]
    assert min_max([]) == []
    assert min_max([1e308, -1e308]) == [1.0, 0.0]
    assert z_scores([1.0, 3.0]) == pytest.approx([-1.0, 1.0])
    assert z_scores([2.0, 2.0]) == [0.0, 0.0]
    assert z_scores([0.1 + 0.2, 0.3, 0.3]) == [0.0, 0.0, 0.0]  # rounding is no difference
    assert z_scores([]) == []
    assert all(map(math.isfinite, z_scores([1e308, -1e308, 0.0])))
    assert rank_scale([9.0, 1.0]) == [1.0, 0.5]
    assert normalizer("none")([3.0]) == [3.0]
    assert mean_and_deviation([3.0]) == (3.0, 0.0)
    with pytest.raises(InputError, match="Did you mean 'min-max'"):
        fusion.linear(LISTS, normalize="minmax")


def test_normalize_is_an_option_of_the_comb_family():
    """Raw by default as in the paper; scaled on request."""
    assert scores(fusion.comb_sum(LISTS, normalize="min-max")) == {"a": 1.0, "b": 1.5, "c": 0.0, "d": 0.0}


def test_unknown_methods_get_a_suggestion():
    """Did-you-mean on method names; underscores are fine."""
    assert fusion.fusion_method("comb_mnz") is fusion.comb_mnz
    with pytest.raises(InputError, match="Did you mean 'comb-mnz'"):
        fusion.fusion_method("comb-mns")
    with pytest.raises(InputError, match="Unknown fusion method 3"):
        fusion.fusion_method(3)


@pytest.mark.hardening  # tests/cli/test_eval.py has the figures of round 2
def test_trec_covid_runs_reproduce_the_measured_gain(data):
    """On real submitted runs: RRF(60) of round 1 reaches 0.2712 nDCG@10 against 0.2538 at best alone."""
    measures = pytest.importorskip("ir_measures")
    from resift.cli.rerank import read_ranked_file

    folder = data / "trec-covid-runs"
    runs = [read_ranked_file(path) for path in sorted(folder.glob("round1.*.run.gz"))]
    qrels = list(measures.read_trec_qrels(str(folder / "qrels.round1.txt")))
    fused = {
        query: {
            hit.id: hit.score - place * 1e-9
            for place, hit in enumerate(fusion.fuse([run.get(query, []) for run in runs]))
        }
        for query in {query for run in runs for query in run}
    }
    value = measures.calc_aggregate([measures.nDCG @ 10], qrels, fused)[measures.nDCG @ 10]
    assert value == pytest.approx(0.2712, abs=0.002)


def test_an_unscored_hit_counts_as_the_lowest_of_its_list():
    """Lists behind a reranker may end in hits without a score; ids alone have none at all."""
    tail = [Hit("a", score=3.0, source="s"), Hit("b", score=1.0, source="s"), Hit("c", source="s")]
    assert scores(fusion.comb_sum([tail])) == {"a": 3.0, "b": 1.0, "c": 1.0}
    assert scores(fusion.comb_sum([[Hit("x"), Hit("y")]])) == {"x": 0.0, "y": 0.0}
