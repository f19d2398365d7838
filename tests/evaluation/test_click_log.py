"""Click logs: read strictly, corrected for position bias, adopted only if held-out queries agree."""

from __future__ import annotations

import json
import random

import pytest

from resift.cli.main import main
from resift.errors import DataFormatError, InputError
from resift.evaluation.click_log import (
    MIN_CLICKS,
    MIN_PROPENSITY,
    MIN_QUERIES,
    estimate_propensities,
    fit_click_log,
    label_clicks,
    read_click_log,
)
from resift.evaluation.recording import Header, RecordedQuery, Recording, default_setting
from resift.external.candidates import content_id

HEADER = Header(stores=("words", "meaning"), reranker="", depth=0, k=10, retrieval_modes=("lexical", "dense"))
SEEN = (1.0, 0.6, 0.4, 0.3, 0.25, 0.2, 0.17, 0.15)
"""How often people look at each position of the simulated page."""

QUERIES = [f"query {i}" for i in range(60)]
SHOWN = [f"d{i}" for i in range(8)]
WORDS_ORDER = SHOWN
MEANING_ORDER = ["d6", *SHOWN[1:6], "d0", "d7"]


def simulate(path, *, relevance, pages=40, swap=0.5, seed=7):
    """Write pages in the order of the keyword list; some swap two results. People click what they look at."""
    chance = random.Random(seed)
    lines = []
    for query in QUERIES:
        for _ in range(pages):
            page = list(SHOWN)
            if chance.random() < swap:
                i, j = chance.sample(range(len(page)), 2)
                page[i], page[j] = page[j], page[i]
            clicked = [
                id for seen, id in zip(SEEN, page, strict=True) if chance.random() < seen * relevance.get(id, 0.05)
            ]
            lines.append(json.dumps({"query": query, "results": page, "clicked": clicked}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def recording():
    """Return a recording in which the two stores rank the same documents differently."""
    rows = []
    for query in QUERIES:
        orders = {"words": WORDS_ORDER, "meaning": MEANING_ORDER}
        lists = {name: tuple((id, 10.0 - i) for i, id in enumerate(order)) for name, order in orders.items()}
        rows.append(RecordedQuery(content_id(query), "click-log", lists))
    return Recording(HEADER, tuple(rows))


@pytest.fixture(scope="module")
def biased(tmp_path_factory):
    """Return a log in which the best document is far down and gets fewer clicks than the first one."""
    folder = tmp_path_factory.mktemp("clicks")
    return read_click_log(simulate(folder / "log.jsonl", relevance={"d6": 0.9, "d0": 0.3}, pages=100))


def test_propensities_match_the_simulated_attention(biased):
    propensities = estimate_propensities(biased)
    assert list(propensities) == list(range(1, 9))
    for position, value in propensities.items():
        assert value == pytest.approx(SEEN[position - 1], rel=0.3, abs=0.03)


def test_corrected_clicks_move_the_weight_toward_the_better_list(biased):
    """The document at position 7 has fewer clicks than the first one and is better all the same."""
    labels = label_clicks(biased)
    fit = fit_click_log(recording(), labels)
    assert fit.reason == ""
    assert fit.p <= 0.05
    assert fit.gain > 0
    assert fit.best.dense_shift > 0

    clicks = {id: sum(n for shown in biased.counts.values() for _, n in shown[id].values()) for id in SHOWN}
    corrected = {id: sum(shown[id] for shown in labels.relevance.values()) for id in SHOWN}
    assert clicks["d0"] > clicks["d6"]
    assert corrected["d6"] > 2 * corrected["d0"]


def test_the_default_stays_without_a_signal(tmp_path):
    log = read_click_log(simulate(tmp_path / "log.jsonl", relevance=dict.fromkeys(SHOWN, 0.3)))
    fit = fit_click_log(recording(), label_clicks(log))
    assert fit.reason
    assert fit.best == default_setting(HEADER)


def test_a_log_that_never_moves_a_document_is_refused(tmp_path):
    log = read_click_log(simulate(tmp_path / "log.jsonl", relevance={"d0": 0.9}, swap=0.0))
    with pytest.raises(InputError, match=r"\b0 documents shown at different positions for the same query"):
        label_clicks(log)


def test_a_small_log_is_refused_with_its_numbers(tmp_path):
    path = tmp_path / "log.jsonl"
    pages = [["a", "b"], ["b", "a"]] * 8
    rows = [{"query": "one", "results": page, "clicked": page} for page in pages]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=f"1 queries with 32 clicks.*{MIN_QUERIES} queries and {MIN_CLICKS}"):
        label_clicks(read_click_log(path))
    (tmp_path / "notes.md").write_text("A zebra has stripes.\n")
    assert main(["tune", str(tmp_path / "notes.md"), "--click-log", str(path)]) == 1


def test_the_correction_of_one_click_is_bounded(tmp_path):
    """Nobody looks at position 2, almost: its clicks count ten times at most."""
    path = tmp_path / "log.csv"
    rows = ["query,id,position,clicked"]
    rows += [f"q,{id},1,1" for id in "ab" for _ in range(400)]
    rows += [f"q,{id},2,{int(i < 5)}" for id in "ab" for i in range(400)]
    path.write_text("\n".join(rows) + "\n")
    assert estimate_propensities(read_click_log(path)) == {1: 1.0, 2: MIN_PROPENSITY}


def test_pages_impressions_and_csv_give_the_same_log(tmp_path):
    page, rows, table = (tmp_path / name for name in ("page.jsonl", "rows.jsonl", "table.tsv"))
    page.write_text('{"query": "q", "results": ["a", 7], "clicked": [2]}\n')
    rows.write_text(
        '{"query": "q", "id": "a", "position": 1, "clicked": false}\n'
        '{"query": "q", "id": 7, "position": "2", "clicked": 1}\n'
    )
    table.write_text("Query\tid\tposition\tclicked\nq\ta\t1\tno\nq\t7\t2\ttrue\n")
    expected = {content_id("q"): {"a": {1: [1, 0]}, "7": {2: [1, 1]}}}
    assert [read_click_log(path).counts for path in (page, rows, table)] == [expected] * 3


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.jsonl", '{"results": ["a"]}', "query"),
        ("a.jsonl", '{"query": "q", "results": []}', "results"),
        ("a.jsonl", '{"query": "q", "results": ["a", "a"]}', "twice"),
        ("a.jsonl", '{"query": "q", "results": ["a"], "clicked": [2]}', "neither"),
        ("a.jsonl", '{"query": "q", "results": ["a"], "clicked": [true]}', "neither"),
        ("a.jsonl", '{"query": "q", "results": [null]}', "string or an integer"),
        ("a.jsonl", '{"query": "q", "id": "a", "position": 0, "clicked": true}', "1 is the first"),
        ("a.jsonl", '{"query": "q", "id": "a", "position": 1, "clicked": "often"}', "often"),
        ("a.csv", "query,id,position\nq,a,1", "clicked"),
        ("a.csv", "query,id,position,clicked\nq,a,b,1,1", "quote"),
        ("a.csv", 'query,id,position,clicked\n"q,a,1,1', "CSV"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, name, text, word):
    path = tmp_path / name
    path.write_text(text + "\n")
    with pytest.raises(DataFormatError, match=word) as error:
        read_click_log(path)
    assert error.value.line
