"""Trust: what a question's own pool says about its lists and its reranker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.adaptive_weights import (
    Trust,
    letters_per_word,
    list_weights,
    marks_per_word,
    reading_depth,
    reranker_weight,
    text_evidence,
    weights_in_words,
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
    rules = Trust()
    assert rules.prose_part(marks_per_word([WRAPPED[kind]] * 5)) == 1
    letters = letters_per_word([WRAPPED[kind]] * 5)
    assert letters == pytest.approx(letters_per_word([TURN] * 5), abs=0.6)


@given(st.lists(st.sampled_from([*WRAPPED.values(), *PROGRAMS.values(), PROSE, TURN, "", "&"]), max_size=6))
def test_both_kinds_of_evidence_are_read_from_the_same_texts(texts):
    """Reading both at once gives the same numbers as reading each."""
    assert text_evidence(texts) == (marks_per_word(texts), letters_per_word(texts))


@pytest.mark.parametrize("language", PROGRAMS)
def test_code_of_any_language_is_no_prose(language):
    """Names joined to names, calls and assignments are in all of them."""
    assert Trust().prose_part(marks_per_word([PROGRAMS[language]] * 5)) == 0


def test_code_has_several_times_the_marks_of_prose():
    """Prose stays below the lower bound, code is above the upper one."""
    rules = Trust()
    assert marks_per_word([PROSE] * 9) < rules.prose
    assert marks_per_word([CODE] * 9) > rules.code
    assert rules.prose_part(marks_per_word([PROSE] * 9)) == 1
    assert rules.prose_part(marks_per_word([CODE] * 9)) == 0


@pytest.mark.parametrize("text", ["", "   ", "東京の天気は、晴れです。", "Привет, как дела?", "f(x[0])"])
def test_little_text_and_scripts_without_spaces_are_no_code(text):
    """A few words tell nothing, and marks of sentences are none of code."""
    assert Trust().prose_part(marks_per_word([text])) == 1
    assert marks_per_word(["東京の天気は、晴れです。"] * 99) == 0
    assert marks_per_word([]) == 0


def test_vectors_count_a_little_more_than_words_and_much_more_in_code():
    """The weights add up to one, whatever the number of lists and kinds."""
    rules = Trust()
    assert list_weights(["doc", "vector"], rules, marks=0.1) == pytest.approx([0.45, 0.55])
    assert list_weights(["doc", "vector"], rules, marks=0.9) == pytest.approx([0.1, 0.9])
    assert list_weights(["", "", ""], rules, marks=0.9) == pytest.approx([1 / 3] * 3)
    assert list_weights(["doc"], Trust(vectors_in_code=1), marks=2.0) == [1.0]
    assert list_weights([], rules, marks=0.1) == []


@given(kinds=st.lists(st.sampled_from(["doc", "vector", "graph", ""]), min_size=1), marks=st.floats(0, 3))
def test_weights_always_add_up_to_one(kinds, marks):
    """No list is ever worth less than nothing."""
    weights = list_weights(kinds, Trust(), marks=marks)
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
    rules = Trust()
    assert letters_per_word([TALK] * 3) < rules.plain
    assert letters_per_word([ABSTRACT] * 3) > rules.technical
    assert letters_per_word([GERMAN] * 5) == 0
    assert letters_per_word(["東京の天気は、晴れです。"] * 99) == 0
    assert letters_per_word([TALK]) is letters_per_word([]) is None


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
    assert letters_per_word([text] * 9) == 0


def test_a_reranker_of_english_is_doubted_elsewhere():
    """One that may know other languages counts as in usual English."""
    rules = Trust()
    assert reranker_weight(rules, marks=0.0, letters=0.0, english_only=True) == rules.doubted
    assert reranker_weight(rules, marks=0.0, letters=0.0) == pytest.approx(0.75)
    assert reranker_weight(rules, marks=0.0, letters=None, english_only=True) == pytest.approx(0.75)


def test_capital_letters_tell_the_same():
    """Old news and telegrams are written in capitals alone."""
    assert letters_per_word([TALK.upper()] * 3) == letters_per_word([TALK] * 3)
    assert letters_per_word([ABSTRACT.upper()] * 3) == letters_per_word([ABSTRACT] * 3)


def test_a_reranker_counts_for_more_where_words_are_plain():
    """Between the bounds it falls evenly; where nothing is told as in usual English; never in code."""
    rules = Trust()
    told = [reranker_weight(rules, marks=0.1, letters=letters) for letters in (3.0, 4.2, 5.1, 6.0, 9.0)]
    assert told == pytest.approx([0.95, 0.95, 0.725, 0.5, 0.5])
    assert reranker_weight(rules, marks=0.1, letters=None) == pytest.approx(0.75)
    assert reranker_weight(rules, marks=1.0, letters=4.0) == 0


def test_a_sure_first_stage_is_read_less_deeply():
    """A leader far ahead leaves the least to read, a flat list the most, code nothing."""
    rules = Trust()
    assert reading_depth([9.0, *([0.0] * 99)], rules, marks=0.1) == rules.least
    assert reading_depth([1.0] * 100, rules, marks=0.1) == rules.most
    assert reading_depth([1.0] * 3, rules, marks=0.1) == 3
    assert reading_depth([1.0] * 100, rules, marks=0.9) == 0
    assert reading_depth([], rules, marks=0.1) == 0


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=1, max_size=60),
    factor=st.sampled_from([0.25, 2.0, 8.0]),
)
def test_reading_depth_does_not_depend_on_the_scale(scores, factor):
    """The same list in other units is read as deeply."""
    scores = sorted(scores, reverse=True)
    depth = reading_depth(scores, Trust(), marks=0)
    assert depth == reading_depth([factor * score for score in scores], Trust(), marks=0)
    assert min(len(scores), Trust().least) <= depth <= Trust().most


def test_weights_are_told_with_their_reason():
    """Prose needs no reason."""
    weights = {"docs.text": 0.1, "docs.vectors": 0.9}
    assert weights_in_words(weights, Trust(), marks=0.02) == "docs.text counted 0.1, docs.vectors counted 0.9"
    assert weights_in_words(weights, Trust(), marks=0.9).endswith(": 0.9 marks of code per word, no prose")
    assert weights_in_words(weights, Trust(), marks=0.19).endswith(
        ": 0.19 marks of code per word, hardly prose"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vectors": 1.5}, "Trust vectors is 1.5; it must be a number ≥ 0, ≤ 1."),
        ({"prose": 0.8}, "use 0 ≤ prose < code"),
        ({"plain": 7.0}, "use 0 ≤ plain < technical"),
        ({"reach": -1.0}, "Trust reach is -1.0; it must be a number ≥ 0."),
        ({"least": 30}, "use 1 ≤ least ≤ most"),
    ],
)
def test_wrong_numbers_are_refused(wrong, message):
    """At once, and by name."""
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        Trust(**wrong)
