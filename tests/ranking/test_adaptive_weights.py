"""Adaptive weights: text properties, weights of the lists and the reranker, and the rerank depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.adaptive_weights import (
    AdaptiveWeights,
    code_density,
    describe_weights,
    list_weights,
    mean_word_length,
    rerank_depth,
    reranker_weight,
    text_evidence,
)

PROSE = "The ferry leaves at noon, and bikes are free in August. Dogs pay half."
CODE = 'def paste(xsel=False):\n    return subprocess.Popen(["xclip", "-o"], stdout=PIPE).communicate()[0]'


TURN = "I went to the harbour with Ana, and she said that the boat of her aunt is for sale."
WRAPPED = {
    "records": json.dumps({"role": "user", "timestamp": "2024-05-20T02:21:33Z", "content": TURN}),
    "stamps": f"[2024/05/20 (Mon) 02:21] Ana: {TURN} :-)",
    "tags": f'<div class="turn"><p style="x=1;y=2">{TURN}</p></div> &nbsp;&amp;',
    "addresses": f"- **Ana**: {TURN} [here](https://example.com/a_b/c.html?d=e&f=g;h)",
    "a table": f"| 12.5 | 2024-05-20 | {TURN} |\n|------|:---:|------|",
    "citations": f"{TURN} (Smith et al., 2019; [12], [13]), p < .05, 95% CI: 0.2-0.4",
    "people": f"@ana_m_92: {TURN} #good_day @bob.k",
    "letters": f"From: ana.m@example.com\nTo: bob_k@post.example.org\nSubject: Re: the boat\n\n{TURN}",
    "headings": f"{TURN}\n========\n\n{TURN}\n________",
}
PROGRAMS = {
    "Python": CODE,
    "C": "static int add(struct pair *p, int n) { p->left = n; return sum_of(p->right, n); }",
    "JavaScript": "const found = rows.filter((row) => row.kind === wanted).map(name); return found.join(s);",
    "SQL": "SELECT a.id, b.name FROM users a JOIN orders b ON a.id = b.user_id WHERE b.made_at > a.seen_at;",
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_prose_in_a_wrapping_is_prose(kind):
    """Turns of talk as records, with stamps, in tags, lists and tables have marks, but not those of code."""
    rules = AdaptiveWeights()
    assert rules.prose_weight(code_density([WRAPPED[kind]] * 5)) == 1
    letters = mean_word_length([WRAPPED[kind]] * 5)
    assert letters == pytest.approx(mean_word_length([TURN] * 5), abs=0.6)


@given(st.lists(st.sampled_from([*WRAPPED.values(), *PROGRAMS.values(), PROSE, TURN, "", "&"]), max_size=6))
def test_both_kinds_of_evidence_are_read_from_the_same_texts(texts):
    """Reading both at once gives the same numbers as reading each."""
    assert text_evidence(texts) == (code_density(texts), mean_word_length(texts))


@pytest.mark.parametrize("language", PROGRAMS)
def test_code_of_any_language_is_no_prose(language):
    """Names joined to names, calls and assignments are in all of them."""
    assert AdaptiveWeights().prose_weight(code_density([PROGRAMS[language]] * 5)) == 0


def test_code_has_several_times_the_marks_of_prose():
    """Prose stays below the lower bound, code is above the upper one."""
    rules = AdaptiveWeights()
    assert code_density([PROSE] * 9) < rules.max_prose_code_density
    assert code_density([CODE] * 9) > rules.min_code_density
    assert rules.prose_weight(code_density([PROSE] * 9)) == 1
    assert rules.prose_weight(code_density([CODE] * 9)) == 0


@pytest.mark.parametrize("text", ["", "   ", "東京の天気は、晴れです。", "Привет, как дела?", "f(x[0])"])
def test_little_text_and_scripts_without_spaces_are_no_code(text):
    """A few words tell nothing, and marks of sentences are none of code."""
    assert AdaptiveWeights().prose_weight(code_density([text])) == 1
    assert code_density(["東京の天気は、晴れです。"] * 99) == 0
    assert code_density([]) == 0


def test_vectors_count_a_little_more_than_words_and_much_more_in_code():
    """The weights add up to one, whatever the number of lists and kinds."""
    rules = AdaptiveWeights()
    assert list_weights(["doc", "vector"], rules, code_density=0.1) == pytest.approx([0.45, 0.55])
    assert list_weights(["doc", "vector"], rules, code_density=0.9) == pytest.approx([0.1, 0.9])
    assert list_weights(["", "", ""], rules, code_density=0.9) == pytest.approx([1 / 3] * 3)
    assert list_weights(["doc"], AdaptiveWeights(dense_weight_in_code=1), code_density=2.0) == [1.0]
    assert list_weights([], rules, code_density=0.1) == []


@given(kinds=st.lists(st.sampled_from(["doc", "vector", "graph", ""]), min_size=1), marks=st.floats(0, 3))
def test_weights_always_add_up_to_one(kinds, marks):
    """No list is ever worth less than nothing."""
    weights = list_weights(kinds, AdaptiveWeights(), code_density=marks)
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= 0


TALK = "I went to see the band with you last week and it was so good that I got up at six for it. "
ABSTRACT = (
    "Inhibition of mitochondrial respiration in cardiomyocytes is associated with oxidative dysregulation. "
)
GERMAN = (
    "Die Fähre fährt um zwölf Uhr ab, und Fahrräder kosten außerhalb der Ferien nichts, auch wenn es regnet. "
)


def test_words_of_talk_are_shorter_than_those_of_a_field():
    """Of other languages it is not told, and a few words tell nothing at all."""
    rules = AdaptiveWeights()
    assert mean_word_length([TALK] * 3) < rules.short_word_length
    assert mean_word_length([ABSTRACT] * 3) > rules.long_word_length
    assert mean_word_length([GERMAN] * 5) == 0
    assert mean_word_length(["東京の天気は、晴れです。"] * 99) == 0
    assert mean_word_length([TALK]) is mean_word_length([]) is None


@pytest.mark.parametrize(
    "text",
    [
        "I traghetti a Venezia partono in orario e i cani a bordo pagano in media la metà. ",
        "A balsa sai ao meio-dia e a bicicleta vai de graça a bordo a partir de agosto. ",
        "De veerboot vertrekt in de zomer om twaalf uur; een fiets is gratis, een hond of kat in mei. ",
        "2024-05-20,12.5,13.7,1994,A,B\n2024-05-21,11.0,12.9,1995,A,I\n",
        "(let ((a 1) (b 2)) (list a b)) (defun add (a i) (+ a i)) ",
    ],
)
def test_a_few_small_words_make_no_english(text):
    """`a`, `i`, `in`, `is` and `of` are words of other languages, and columns and names."""
    assert mean_word_length([text] * 9) == 0


def test_a_reranker_of_english_is_doubted_elsewhere():
    """One that may know other languages counts as in usual English."""
    rules = AdaptiveWeights()
    assert (
        reranker_weight(rules, code_density=0.0, mean_word_length=0.0, english_only=True)
        == rules.min_reranker_weight
    )
    assert reranker_weight(rules, code_density=0.0, mean_word_length=0.0) == pytest.approx(0.75)
    assert reranker_weight(
        rules, code_density=0.0, mean_word_length=None, english_only=True
    ) == pytest.approx(0.75)


def test_capital_letters_tell_the_same():
    """Old news and telegrams are written in capitals alone."""
    assert mean_word_length([TALK.upper()] * 3) == mean_word_length([TALK] * 3)
    assert mean_word_length([ABSTRACT.upper()] * 3) == mean_word_length([ABSTRACT] * 3)


def test_a_reranker_counts_for_more_where_words_are_plain():
    """Between the bounds it falls evenly; where nothing is told as in usual English; never in code."""
    rules = AdaptiveWeights()
    told = [
        reranker_weight(rules, code_density=0.1, mean_word_length=letters)
        for letters in (3.0, 4.2, 5.1, 6.0, 9.0)
    ]
    assert told == pytest.approx([0.95, 0.95, 0.725, 0.5, 0.5])
    assert reranker_weight(rules, code_density=0.1, mean_word_length=None) == pytest.approx(0.75)
    assert reranker_weight(rules, code_density=1.0, mean_word_length=4.0) == 0


def test_a_sure_first_stage_is_read_less_deeply():
    """A leader far ahead leaves the least to read, a flat list the most, code nothing."""
    rules = AdaptiveWeights()
    assert rerank_depth([9.0, *([0.0] * 99)], rules, code_density=0.1) == rules.min_depth
    assert rerank_depth([1.0] * 100, rules, code_density=0.1) == rules.max_depth
    assert rerank_depth([1.0] * 3, rules, code_density=0.1) == 3
    assert rerank_depth([1.0] * 100, rules, code_density=0.9) == 0
    assert rerank_depth([], rules, code_density=0.1) == 0


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=1, max_size=60),
    factor=st.sampled_from([0.25, 2.0, 8.0]),
)
def test_rerank_depth_does_not_depend_on_the_scale(scores, factor):
    """The same list in other units is read as deeply."""
    scores = sorted(scores, reverse=True)
    depth = rerank_depth(scores, AdaptiveWeights(), code_density=0)
    assert depth == rerank_depth([factor * score for score in scores], AdaptiveWeights(), code_density=0)
    assert min(len(scores), AdaptiveWeights().min_depth) <= depth <= AdaptiveWeights().max_depth


def test_weights_are_told_with_their_reason():
    """Prose needs no reason."""
    rules, weights = AdaptiveWeights(), {"docs.text": 0.1, "docs.vectors": 0.9}
    assert (
        describe_weights(weights, rules, code_density=0.02) == "docs.text weight 0.1, docs.vectors weight 0.9"
    )
    assert describe_weights(weights, rules, code_density=0.9).endswith(": 0.9 signs of code per word, code")
    assert describe_weights(weights, rules, code_density=0.19).endswith(
        ": 0.19 signs of code per word, mixed with code"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dense_weight": 1.5}, "AdaptiveWeights dense_weight is 1.5; it must be a number ≥ 0, ≤ 1."),
        ({"max_prose_code_density": 0.8}, "use max_prose_code_density < min_code_density"),
        ({"short_word_length": 7.0}, "use short_word_length < long_word_length"),
        (
            {"depth_cutoff_sigma": -1.0},
            "depth_cutoff_sigma is -1.0; it must be a number ≥ 0.",
        ),
        ({"min_depth": 30}, "use min_depth ≤ max_depth"),
    ],
)
def test_wrong_numbers_are_refused(wrong, message):
    """At once, and by name."""
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        AdaptiveWeights(**wrong)


def test_the_names_of_0_2_still_work():
    with pytest.warns(DeprecationWarning, match="dense_weight"):
        rules = AdaptiveWeights(vectors=0.4)
    assert rules == AdaptiveWeights(dense_weight=0.4)
    with pytest.warns(DeprecationWarning, match="max_depth"):
        assert rules.most == 25
