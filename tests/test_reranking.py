"""resift.rerank: one call from anywhere, every kind of document, never fatal, never silent."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import resift
from resift.deadline import Deadline
from resift.errors import InputError
from resift.rerankers import cross_encoder
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.types import Hit

pytestmark = pytest.mark.real_model

QUERY = "what is the capital of France?"
PARIS = "Paris is the capital and largest city of France."
LYON = "Lyon, a city in France, is famous for its cheese."
CELLS = "The mitochondria is the powerhouse of the cell."
HAMMER_S = float(os.environ.get("RESIFT_HAMMER_S", "0.4"))


def run_script(program):
    """Run a program in a new process with this checkout on its path."""
    env = {**os.environ, "PYTHONPATH": str(Path(resift.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env, check=False
    )


def test_strings_dicts_and_hits_are_ordered_alike():
    for documents in (
        [CELLS, LYON, PARIS],
        [{"content": CELLS}, {"title": LYON}, {"text": PARIS}],
        [Hit("0", CELLS), Hit("1", LYON), Hit("2", PARIS)],
    ):
        ranking = resift.rerank(QUERY, documents)
        assert ranking.ids == ["2", "1", "0"]
        assert not ranking.degraded
        assert ranking.tier == "cross-encoder"
        assert ranking.replay() == ranking.ids


def test_k_keeps_the_best_and_the_rest_can_be_asked_for():
    ranking = resift.rerank(QUERY, [CELLS, LYON, PARIS], k=1)
    assert [hit.text for hit in ranking] == [PARIS]
    assert [hit.id for hit in ranking.cut] == ["1", "0"]
    assert ranking.why("2")
    assert ranking.why("0")


@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
def test_every_document_comes_back_once(count):
    documents = [f"note {number}: rain" for number in range(count)]
    ranking = resift.rerank("rain", documents)
    assert sorted(ranking.ids, key=int) == [str(number) for number in range(count)]
    assert [hit.score for hit in ranking] == sorted((hit.score for hit in ranking), reverse=True)


def test_texts_of_every_kind_are_scored():
    documents = [
        "👩‍🚀🏳️‍🌈 " * 5,
        "باريس هي عاصمة فرنسا",
        "\x00\x07\u202e\ufeff",
        "\ud800 lone",
        PARIS,
        PARIS,
        "a" * 5000,
    ]
    ranking = resift.rerank(QUERY, documents)
    assert len(ranking) == len(documents)
    assert not ranking.degraded
    scores = {hit.id: hit.score for hit in ranking}
    assert scores["4"] == scores["5"]
    assert ranking.ids[:2] == ["4", "5"]


def test_empty_texts_stand_last_unscored_unless_they_are_to_be_scored():
    ranking = resift.rerank(QUERY, ["", "  ", CELLS])
    assert ranking.ids == ["2", "0", "1"]
    assert ranking.unscored == ("0", "1")
    scored = resift.rerank(QUERY, ["", CELLS], missing_text="empty")
    assert scored.unscored == ()


def test_texts_that_are_missing_in_part_are_reported():
    ranking = resift.rerank(QUERY, [{"body": PARIS}, {"summary": CELLS}], fields=["body"])
    assert ranking.ids == ["0", "1"]
    assert ranking.warnings == ("1 of 2 documents have no text and rank last: '1'",)
    assert resift.rerank(QUERY, [PARIS, CELLS]).warnings == ()


@pytest.mark.parametrize("query", ["", "  \n"])
def test_an_empty_query_is_refused(query):
    with pytest.raises(InputError, match="query is empty"):
        resift.rerank(query, [PARIS, CELLS])


def test_a_set_of_documents_is_refused_because_it_has_no_order():
    with pytest.raises(InputError, match="no order"):
        resift.rerank(QUERY, {PARIS, CELLS})


def test_a_long_query_is_read_in_parts():
    ranking = resift.rerank("capital of France " * 5000, [CELLS, PARIS])
    assert ranking.ids == ["1", "0"]
    assert "query of 15000 tokens split into 313 parts, 8 scored with each text" in ranking.path("1")[-1].note


@pytest.mark.parametrize(("sentences", "place"), [(40, "first"), (30, "last")])
def test_a_query_is_never_cut(sentences, place):
    """A question counts as much as alone wherever it stands in a long query, and the record says how."""
    context = " ".join(f"Minute {number} of the meeting: the budget was read." for number in range(sentences))
    query = f"{QUERY} {context}" if place == "first" else f"{context} {QUERY}"
    ranking, alone = resift.rerank(query, [CELLS, PARIS]), resift.rerank(QUERY, [CELLS, PARIS])
    assert [(hit.id, hit.score) for hit in ranking] == [(hit.id, hit.score) for hit in alone]
    assert f"split into {sentences + 1} parts" in ranking.path("1")[-1].note
    hay = "The committee discussed the agenda and adjourned. " * 8
    assert resift.rerank(query, [hay, hay + PARIS]).ids == ["1", "0"]


def test_a_query_of_half_a_row_is_read_whole():
    """Up to 256 of 512 tokens nothing is said and nothing is split."""
    query = "capital " * 256
    assert resift.rerank(query, [PARIS]).path("0")[-1].note == ""
    assert "query of 257 tokens split into 6 parts" in resift.rerank(query + "city", [PARIS]).path("0")[-1].note


def test_a_megabyte_is_searched_in_windows_in_bounded_time():
    hay = "The committee discussed the agenda and adjourned. " * 8_000
    started = time.monotonic()
    ranking = resift.rerank(QUERY, [CELLS, hay[:250_000] + PARIS + hay[250_000:]])
    assert time.monotonic() - started < 30
    assert ranking.ids[0] == "1"
    assert "most promising windows" in ranking.path(ranking[0].id)[-1].note


def test_a_long_document_scores_as_its_best_window():
    filler = "The committee discussed the agenda and adjourned. " * 150
    tail, alone = resift.rerank(QUERY, [{"id": "long", "text": filler + PARIS}, {"id": "off", "text": filler}])
    assert (tail.id, alone.id) == ("long", "off")
    assert tail.score > alone.score + 3


def test_a_deadline_returns_all_candidates_in_time_and_says_so():
    resift.rerank(QUERY, [PARIS])
    documents = [f"{number} {LYON} {CELLS} {LYON} {CELLS}" for number in range(200)]
    started = time.monotonic()
    ranking = resift.rerank(QUERY, documents, k=200, deadline_s=0.05)
    assert time.monotonic() - started < 1.0
    assert len(ranking) == 200
    assert ranking.degraded
    assert "of 200 hits scored" in ranking.reason
    scored = 200 - len(ranking.unscored)
    # Workers take texts in order, but one may finish a later text while another is at an earlier one.
    assert set(ranking.ids[:scored]) <= {str(number) for number in range(scored + 16)}


def test_a_deadline_that_passes_while_the_model_loads_is_kept(monkeypatch):
    monkeypatch.setattr(cross_encoder, "_pair_models", {})
    gate = threading.Event()
    monkeypatch.setattr(cross_encoder, "load_pair_model", lambda key: gate.wait(5))
    ranking = resift.rerank(QUERY, [CELLS, PARIS], deadline_s=0.02)
    gate.set()
    with cross_encoder._lock:  # the loading thread is done with what is patched here
        assert ranking.ids == ["0", "1"]
    assert "loading" in ranking.reason


def test_progress_is_told_and_a_broken_callback_does_not_matter():
    told = []
    resift.rerank(QUERY, [CELLS, LYON, PARIS, PARIS], on_progress=lambda done, total: told.append((done, total)))
    assert sorted(told) == [(1, 3), (2, 3), (3, 3)]
    assert not resift.rerank(QUERY, [PARIS], on_progress=lambda done: None).degraded


def test_inputs_are_not_changed():
    documents = [{"text": PARIS, "tags": ["a"]}, {"content": LYON}]
    before = copy.deepcopy(documents)
    resift.rerank(QUERY, documents)
    assert documents == before


def test_a_missing_model_degrades_with_a_reason(tmp_path):
    ranking = resift.rerank(QUERY, [CELLS, PARIS], k=1, folder=tmp_path)
    assert ranking.ids == ["0"]
    assert ranking.degraded
    assert "cross-encoder failed" in ranking.reason


@pytest.mark.parametrize(("missing", "extra"), [("onnxruntime", "onnx"), ("tokenizers", "local")])
def test_a_missing_package_degrades_with_the_line_that_installs_it(missing, extra):
    """Compiled code does without the runtime, so that is asked for by switching the code off."""
    program = (
        f"import os, sys; sys.modules['{missing}'] = None; os.environ['RESIFT_NATIVE'] = '0'\n"
        "import resift\n"
        "r = resift.rerank('q', ['a', 'b'])\n"
        "print(r.ids, r.degraded, r.reason)"
    )
    done = run_script(program)
    assert "['0', '1'] True" in done.stdout
    # From a checkout, as here, the hint names the checkout.
    assert re.search(rf"pip install (-e )?'(resift|\.)\[{extra}\]'", done.stdout)


def test_a_model_that_is_not_allowed_is_the_callers_mistake():
    with pytest.raises(ValueError, match=r"model_name .* is not in allowed models"):
        resift.rerank(QUERY, [PARIS], model="other/model")


def test_it_works_inside_a_running_loop_and_in_threads():
    async def notebook():
        return resift.rerank(QUERY, [CELLS, PARIS]).ids

    assert asyncio.run(notebook()) == ["1", "0"]
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(resift.rerank(QUERY, [CELLS, PARIS]).ids)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [["1", "0"]] * 4


def test_neither_query_nor_text_is_logged(caplog, tmp_path):
    with caplog.at_level(logging.DEBUG):
        resift.rerank("zebraquery secret", ["giraffetext secret", "other"])
        resift.rerank("zebraquery secret", ["giraffetext secret"], folder=tmp_path)
        resift.rerank("zebraquery secret", ["giraffetext secret"] * 2 + ["x"], deadline_s=0)
    assert "secret" not in caplog.text


def test_a_call_under_way_shows_no_text():
    model = CrossEncoderReranker()._model
    call = model.start("zebraquery secret", ["giraffetext secret"])
    assert call.job.future.result(30)
    assert "secret" not in repr(call) + repr(call.job) + repr(model)


def test_eight_threads_and_two_loops_get_the_scores_they_get_alone():
    reranker = CrossEncoderReranker()
    texts = [PARIS, LYON, CELLS, "Rain.", "France has many rivers and mountains."]
    hits = [Hit(str(number), text) for number, text in enumerate(texts)]
    alone = [hit.score for hit in asyncio.run(rescore(reranker, QUERY, hits, k=9))]
    rows = [{"content": text} for text in texts]
    end, wrong = time.monotonic() + HAMMER_S, []

    def check(scores):
        if scores != alone:
            wrong.append(scores)

    def facade():
        while time.monotonic() < end:
            check([row["ce_score"] for row in reranker.rerank(QUERY, rows)])

    async def once():
        scores = await reranker.score(QUERY, hits, deadline=Deadline.never())
        check(sorted(scores.values, reverse=True))

    async def loop():
        while time.monotonic() < end:
            await asyncio.gather(*(once() for _ in range(3)))

    threads = [threading.Thread(target=facade) for _ in range(8)]
    threads += [threading.Thread(target=lambda: asyncio.run(loop())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_script_ends_at_once_while_work_is_waiting():
    program = (
        "import threading, resift\n"
        "resift.rerank('q', ['a'])\n"
        "docs = [f'{n} ' + 'word ' * 300 for n in range(400)]\n"
        "threading.Thread(target=resift.rerank, args=('q', docs), daemon=True).start()\n"
        "print('done')"
    )
    started = time.monotonic()
    done = run_script(program)
    assert done.stdout.strip() == "done"
    assert done.returncode == 0
    assert time.monotonic() - started < 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_can_rerank():
    expected = resift.rerank(QUERY, [CELLS, PARIS]).ids
    child = os.fork()
    if child == 0:
        os._exit(0 if resift.rerank(QUERY, [CELLS, PARIS]).ids == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.real_model
def test_the_sample_of_the_playground_wins():
    """The first question that a visitor tries has its answer first."""
    page = (Path(resift.__file__).parent / "server/playground/documents.js").read_text()
    query = re.search(r'query: "([^"]+)"', page)[1]
    documents = re.findall(r'^    "([^"]+)",$', page, re.MULTILINE)
    assert len(documents) == 8
    assert resift.rerank(query, documents)[0].text.startswith("Sailors once measured speed")


def test_arrays_in_the_place_of_words_are_reported():
    """An array has no truth value: the message says what is allowed instead."""
    import numpy as np

    with pytest.raises(InputError, match="'raw' or 'probability'"):
        resift.rerank("q", ["a", "b"], scores=np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="The id"):
        resift.fuse([["a"]]).snippet(np.array([1, 2]))
