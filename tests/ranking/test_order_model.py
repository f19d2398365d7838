"""The learned model of the default order: facts about texts, weights, language fit, and the rerank depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.order_model import (
    CHUNK_SHARE,
    CODE_AGREEMENT,
    CODE_CONFIDENCE,
    CODE_DENSITY,
    MAX_DEPTH,
    MAX_PROSE_DENSITY,
    MEAN_WORD_LENGTH,
    MIN_CODE_DENSITY,
    MIN_DEPTH,
    OTHER_LANGUAGE,
    SCORER_AGREEMENT,
    SCORER_FIT,
    default_model,
    language_fit,
    list_facts,
    rerank_depth,
    scorer_facts,
    text_facts,
)

PROSE = "The ferry leaves at noon, and bikes are free in August. Dogs pay half."
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
    "Python": "def paste(x_sel=False):\n    out_pipe = Popen(['xclip'], stdout=PIPE).communicate()\n",
    "C": "static int add(struct pair *p, int n) { p->left = n; return sum_of(p->right, n); }",
    "JavaScript": "const found = rows.filter((row) => row.kind === wanted).map(name); return found.join(s);",
    "SQL": "SELECT a.id, b.name FROM users a JOIN orders b ON a.id = b.user_id WHERE b.made_at > a.seen_at;",
}
TALK = "I went to see the band with you last week and it was so good that I got up at six for it. "
ABSTRACT = (
    "Inhibition of mitochondrial respiration in cardiomyocytes is associated with oxidative dysregulation of "
    "the endothelium and to impaired metabolism in that hypertensive cohort. "
)
GERMAN = "Die Fähre fährt um zwölf Uhr ab, und Fahrräder kosten in den Ferien nichts, auch wenn es regnet. "
FOREIGN = {
    "ru": "Этот код вернёт целочисленное представление даты для каждого каталога. ",
    "ar": "الآن وقد صار سهلا علينا المساهمة في مشروع دعنا ننظر إلى الجهة الأخرى. ",
    "ja": "コミットの分割は、いったんコミットを取り消してから部分的に繰り返して行います。",
    "zh": "工作目录中的每一个文件都不外乎这两种状态：已跟踪或未跟踪。",
    "ko": "이 방식에서는 사람들을 프로젝트에 추가하고 권한을 줘야 할 필요가 없다. ",
    "hi": "यह आदेश दो काम करता है और फिर सूची को अद्यतन करता है। ",
    "th": "คำสั่งนี้ทำงานสองอย่างและปรับปรุงรายการ ",
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_prose_in_markup_is_prose(kind):
    facts = text_facts([WRAPPED[kind]] * 5)
    assert facts[CODE_DENSITY] <= MAX_PROSE_DENSITY
    assert facts[MEAN_WORD_LENGTH] == pytest.approx(text_facts([TURN] * 5)[MEAN_WORD_LENGTH], abs=0.6)


@pytest.mark.parametrize("language", PROGRAMS)
def test_programs_have_the_code_density_of_code(language):
    assert text_facts([PROGRAMS[language]] * 5)[CODE_DENSITY] >= MIN_CODE_DENSITY


def test_code_texts_of_similar_lengths_are_chunks_of_files():
    def share(text, sizes):
        return text_facts([text * size for size in sizes]).get(CHUNK_SHARE)

    code = PROGRAMS["Python"]
    assert share(code, (9, 9, 10, 10, 11, 11)) == 1
    assert 0 < share(code, (5, 7, 10, 10, 13, 15)) < 1, "between chunks and functions"
    assert share(code, (1, 2, 3, 5, 9, 20)) is None, "functions"
    assert share(code, (9, 9, 10, 10, 11)) is None, "too few texts"
    assert share(PROSE, (9, 9, 10, 10, 11, 11)) is None
    assert 0 < share(code + 3 * PROSE, [1] * 6) < 1, "between prose and code"


def test_chunks_of_files_have_the_dense_weight_of_prose_and_a_smaller_reranker_weight():
    model = default_model()
    scores = [3.0, 2.0, 1.0, 0.0]
    prose, chunks, functions = {CODE_DENSITY: 0.1}, {CODE_DENSITY: 0.3, CHUNK_SHARE: 1.0}, {CODE_DENSITY: 0.3}
    dense = [model.dense({**facts, **list_facts(scores, scores, facts)}) for facts in (prose, chunks, functions)]
    assert dense == pytest.approx([0.55, 0.55, 0.9], abs=0.001)
    assert [model.reranker_weight(facts)[0] for facts in (prose, chunks, functions)] == pytest.approx([0.75, 0.55, 0.1])
    half = list_facts(scores, scores, {CODE_DENSITY: 0.3, CHUNK_SHARE: 0.5})
    assert half[CODE_AGREEMENT] == pytest.approx(list_facts(scores, scores, functions)[CODE_AGREEMENT] / 2)


def test_a_few_words_have_no_code_density_and_no_word_length():
    for texts in ([], [""], ["f(x[0]); y = {}"], [TALK]):
        assert not {CODE_DENSITY, MEAN_WORD_LENGTH, OTHER_LANGUAGE} & set(text_facts(texts))


def test_words_of_talk_are_shorter_than_those_of_an_abstract():
    short, long = (text_facts([text] * 5)[MEAN_WORD_LENGTH] for text in (TALK, ABSTRACT))
    assert short < 4.2
    assert long > 6
    assert text_facts([TALK.upper()] * 5) == text_facts([TALK] * 5)
    assert MEAN_WORD_LENGTH not in text_facts([GERMAN] * 5)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (GERMAN, 1.0),
        ("I traghetti a Venezia partono in orario e i cani a bordo pagano la metà con il padrone. ", 1.0),
        ("2024-05-20,12.5,13.7,1994,A,B\n2024-05-21,11.0,12.9,1995,A,I\n", 0.0),
        (PROGRAMS["C"], 0.0),
    ],
)
def test_other_languages_in_latin_letters_are_recognized(text, other):
    facts = text_facts([text] * 9)
    assert facts[OTHER_LANGUAGE] == other
    model = default_model()
    if other:
        assert model.reranker_weight(facts, ("en",))[0] < model.reranker_weight(facts, "any")[0] - 0.1
    assert language_fit(("en",), facts) == 1, "Latin letters"


@pytest.mark.parametrize("language", FOREIGN)
def test_models_without_the_script_have_weight_0_and_others_count_fully(language):
    """A scorer or embedder for English does not count; one for this language or any language does."""
    facts = text_facts([FOREIGN[language] * 4] * 9, FOREIGN[language])
    model = default_model()
    assert language_fit(("en",), facts) == 0
    assert model.reranker_weight(facts, ("en",)) == (0.0, "it was not trained on this script")
    for languages in ("any", ("en", language)):
        assert language_fit(languages, facts) == 1
        assert model.reranker_weight(facts, languages)[0] == pytest.approx(model.reranker.base)


def test_the_script_of_the_query_counts_too():
    """An English model cannot compare a Russian query with English texts, nor the other way round."""
    assert language_fit(("en",), text_facts([PROSE] * 9, FOREIGN["ru"])) == 0
    assert language_fit(("en",), text_facts([FOREIGN["ru"]] * 9, PROSE)) == 0
    assert language_fit(("en",), text_facts([PROSE] * 9, "π?")) == 1, "a letter or two do not decide"
    assert language_fit(("en",), {}) == 1


def test_the_weight_of_vector_search_for_prose_and_code():
    model = default_model()
    prose, code = (model.list_weights(["lexical", "dense"], {CODE_DENSITY: density}) for density in (0.1, 0.9))
    assert prose == pytest.approx([1 - model.dense.base, model.dense.base])
    assert code[1] > prose[1]
    assert model.list_weights(["", "", ""], {}) == pytest.approx([1 / 3] * 3)
    assert model.list_weights(["lexical", "dense"], {}, dense_weight=0.2) == pytest.approx([0.8, 0.2])
    assert model.list_weights([], {}) == []


@given(
    modes=st.lists(st.sampled_from(["lexical", "dense", "graph", ""]), min_size=1),
    facts=st.dictionaries(st.sampled_from([CODE_DENSITY, MEAN_WORD_LENGTH, CHUNK_SHARE]), st.floats()),
)
def test_weights_always_add_up_to_one(modes, facts):
    weights = default_model().list_weights(modes, facts)
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= 0
    assert 0 <= default_model().reranker_weight(facts)[0] <= 1


def test_the_reranker_counts_more_for_plain_words_and_less_for_code():
    model = default_model()
    lengths = (3.0, 4.2, 5.1, 6.0, 9.0)
    weights = [model.reranker_weight({MEAN_WORD_LENGTH: length})[0] for length in lengths]
    assert weights == sorted(weights, reverse=True)
    assert (weights[0], weights[3]) == (weights[1], weights[4]), "beyond the range nothing changes"
    assert model.reranker_weight({})[0] == pytest.approx(model.reranker.base)
    assert model.reranker_weight({CODE_DENSITY: 1.0})[0] < model.reranker.base - 0.2


def test_the_reranker_counts_less_if_it_contradicts_the_first_stage():
    model = default_model()
    first = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    same, noise = (scorer_facts(scores, first) for scores in (first, [3.0, 8.0, 1.0, 6.0, 2.0, 7.0, 4.0, 5.0]))
    assert same[SCORER_AGREEMENT] == pytest.approx(1)
    assert abs(noise[SCORER_AGREEMENT]) < 0.3
    assert model.reranker_weight(same)[0] > model.reranker_weight(noise)[0]
    assert scorer_facts([10 * score + 3 for score in first], first) == pytest.approx(same)
    assert scorer_facts([1.0, 2.0], [1.0, 2.0]) == {}, "too few to say anything"


def test_among_functions_a_reranker_counts_if_it_is_confident_and_agrees_with_the_first_stage():
    model = default_model()
    first = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    functions, chunks = {CODE_DENSITY: 0.3}, {CODE_DENSITY: 0.3, CHUNK_SHARE: 1.0}
    unsure, sure = (scorer_facts(scores, first, functions) for scores in (first, [20.0, *first[1:]]))
    assert 0 < unsure[CODE_CONFIDENCE] < sure[CODE_CONFIDENCE] <= 1
    weights = [model.reranker_weight({**functions, **facts})[0] for facts in (unsure, sure)]
    assert weights == pytest.approx([0.1, 0.6], abs=0.05)
    assert CODE_CONFIDENCE not in scorer_facts(first, first, chunks)
    assert CODE_CONFIDENCE not in scorer_facts(first, first)
    assert CODE_CONFIDENCE in scorer_facts([1.0, 2.0], [1.0, 2.0], functions), "two hits have a best one"
    doubtful = [7.0, 1.0, 8.0, 2.0, 6.0, 3.0, 5.0, 4.0]
    prose, code = (scorer_facts(doubtful, first, facts) for facts in ({}, functions))
    assert prose[SCORER_AGREEMENT] == code[SCORER_AGREEMENT] > 0
    assert code[SCORER_FIT] < prose[SCORER_FIT]


def test_shifts_move_the_weights_within_their_bounds():
    shifted = default_model().shifted(dense=0.2, reranker=-0.9)
    assert shifted.list_weights(["lexical", "dense"], {})[1] == pytest.approx(default_model().dense.base + 0.2)
    assert shifted.reranker_weight({})[0] == 0
    with pytest.raises(InputError, match="dense_shift"):
        default_model().shifted(dense=2.0)


def test_a_confident_first_stage_is_reranked_less_deeply():
    assert rerank_depth([9.0, *([0.0] * 99)]) == MIN_DEPTH
    assert rerank_depth([1.0] * 100) == MAX_DEPTH
    assert rerank_depth([1.0] * 100, max_depth=4) == 4
    assert rerank_depth([1.0] * 3) == 3
    assert rerank_depth([]) == 0


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=1, max_size=60),
    factor=st.sampled_from([0.25, 2.0, 8.0]),
)
def test_rerank_depth_does_not_depend_on_the_scale(scores, factor):
    scores = sorted(scores, reverse=True)
    depth = rerank_depth(scores)
    assert depth == rerank_depth([factor * score for score in scores])
    assert min(len(scores), MIN_DEPTH) <= depth <= MAX_DEPTH
