"""Pages made of hostile rankings and results, opened in a real browser: nothing in them runs."""

# ruff: noqa: E501 - a record reads best on one line
from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from resift.errors import ResiftError
from resift.evaluation.html_report import report
from resift.evaluation.measures import Judge
from resift.evaluation.runner import Answer, Outcome, PathStep
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace
from tests.explain.payloads import PAYLOADS
from tests.server.browser import needs_browser, opened


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for all pages."""
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def ran(page: str, browser, folder: Path) -> bool:
    """Open the page and say whether any payload marked it."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    browser.get("about:blank")
    browser.get(file.as_uri())
    while browser.execute_script("return document.readyState") != "complete":
        time.sleep(0.02)
    time.sleep(0.2)  # payloads with timers and events of images
    return browser.execute_script("return document.documentElement.dataset.ran") == "1"


def hostile_ranking() -> Ranking:
    """A ranking with every payload in every field that holds text."""
    hits = tuple(
        Hit(f"{at}{payload}", payload, 1.0 / (at + 1), payload, {payload.replace("\ud800", ""): payload})
        for at, payload in enumerate(PAYLOADS)
    )
    ids = tuple(hit.id for hit in hits)
    notes = {hit.id: hit.text for hit in hits}
    scores = tuple(hit.score for hit in hits)
    parts = {payload: {ids[at]: 1.0, ids[0]: 0.5} for at, payload in enumerate(PAYLOADS)}
    records = [
        StageRecord(kind=StageKind.RETRIEVE, name=PAYLOADS[0], source=PAYLOADS[1], ids=ids, scores=scores, notes=notes),
        StageRecord(kind=StageKind.FUSE, name=PAYLOADS[2], ids=ids, scores=scores, parts=parts, notes=notes),
        *(
            StageRecord(kind=StageKind.RERANK, name=payload, source=payload, ids=ids[:3], scores=scores[:3], note=payload)
            for payload in PAYLOADS
        ),
        StageRecord(kind=StageKind.CUT, name=PAYLOADS[3], ids=ids, kept=60, notes=notes),
    ]  # fmt: skip
    return Ranking(
        hits[:60],
        degraded=True,
        reason=" ".join(PAYLOADS),
        tier=PAYLOADS[5],
        failures={payload: payload for payload in PAYLOADS},
        timings=dict.fromkeys(PAYLOADS, 1.0),
        cut=hits[60:],
        trace=Trace(tuple(records)),
    )


def hostile_report() -> str:
    """A report with a payload in every name, id, text and stage."""
    texts = [payload.replace("\ud800", "").replace("\0", "") for payload in PAYLOADS]
    queries = {f"q{at}{payload}": payload for at, payload in enumerate(texts)}
    qrels = {query: {f"d{text}": 1} for query, text in queries.items()}
    judge = Judge(qrels, ("nDCG@10",))

    def outcome(name: str, *, right: bool) -> Outcome:
        answers = {}
        for query, text in queries.items():
            ids = (f"d{text}", f"other{text}")
            ids = ids if right else ids[::-1]
            paths = {id: [PathStep("retrieve", text, at, text)] for at, id in enumerate(ids, start=1)}
            answers[query] = Answer(query, "x", ids, 1.0, paths=paths, reason=text)
        run = {query: answer.ids for query, answer in answers.items()}
        return Outcome(name, judge.quality(run), run, answers)

    outcomes = [outcome(PAYLOADS[0], right=False), *(outcome(payload, right=True) for payload in PAYLOADS[19:24])]
    return report(PAYLOADS[6], outcomes, qrels, queries)


def test_there_are_a_hundred_payloads():
    assert len(PAYLOADS) >= 100
    assert len(set(PAYLOADS)) == len(PAYLOADS)


@needs_browser
def test_the_browser_would_run_them(browser, tmp_path):
    """The same payloads, pasted into a page without escaping: this test can fail."""
    for payload in (PAYLOADS[0], PAYLOADS[19], PAYLOADS[25]):
        assert ran(f"<html><head></head><body>{payload}</body></html>", browser, tmp_path)


@needs_browser
def test_no_payload_runs_in_the_page_of_a_ranking(browser, tmp_path):
    ranking = hostile_ranking()
    page = ranking.explain(query="".join(PAYLOADS), top=100).html()
    assert not ran(page, browser, tmp_path)
    # The policy holds even where the escaping is taken away.
    opened = page.replace("<body>", f"<body>{PAYLOADS[0]}{PAYLOADS[19]}{PAYLOADS[25]}", 1)
    assert not ran(opened, browser, tmp_path)


@needs_browser
def test_no_payload_runs_in_the_report_of_an_evaluation(browser, tmp_path):
    assert not ran(hostile_report(), browser, tmp_path)


@needs_browser
def test_no_payload_runs_in_a_picture(browser, tmp_path):
    picture = hostile_ranking().explain(query=PAYLOADS[0], top=100).svg()
    assert not ran(f"<html><head></head><body>{picture}</body></html>", browser, tmp_path)


def test_values_from_files_are_checked_before_they_are_shown():
    """A payload where a number, a flag or a list belongs is refused with the name of its place."""
    sound = json.loads(Ranking((Hit("a", "t", 0.5, "s"),), trace=Trace((
        StageRecord(kind=StageKind.FUSE, name="rrf", ids=("a",), scores=(0.5,), parts={"s": {"a": 0.5}}),
    ))).to_json(timings=True))  # fmt: skip
    sound["timings"] = {"total": 1.0}
    Ranking.from_json(json.dumps(sound))
    for place in _places(sound):
        for bad in (PAYLOADS[0], [PAYLOADS[0]], {"rank": PAYLOADS[0]}, 7, True, None):
            spoilt = json.loads(json.dumps(sound))
            _put(spoilt, place, bad)
            try:
                ranking = Ranking.from_json(json.dumps(spoilt))
            except ResiftError as exc:
                assert "script" not in str(exc)  # noqa: PT017 - both ends are right
            else:
                assert "<script>document" not in ranking.explain().html()


def _places(value, path=()):
    """Yield the path of every value in plain data."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _places(one, (*path, key))


def _put(data, path, value):
    if not path:
        data.clear()
        data["hits"] = value
        return
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value
