"""The HTML report: everything in one file, readable in wide and narrow windows, no script errors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from resift.evaluation.html_report import _ticks, report
from resift.evaluation.measures import Judge
from resift.evaluation.runner import Answer, Outcome, PathStep

QRELS = {f"q{at}": {f"d{at}": 1, "d<b>": 2} for at in range(12)}
QUERIES = {query: f"what is <script>alert(1)</script> {query}" for query in QRELS}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def outcome(name, shift, ms):
    answers = {}
    for at, query in enumerate(QRELS):
        ids = [f"d{(at + place * shift) % 14}" for place in range(10)] + ["d<b>"]
        ids = list(dict.fromkeys(ids))
        paths = {
            id: [
                PathStep("retrieve", "collection.text", place),
                PathStep("fuse", "rrf", place),
                PathStep("rerank", "rerank", place + 1),
            ]
            for place, id in enumerate(ids, start=1)
        }
        titles = {"d0": "Paper <zero>"}
        answers[query] = Answer(query, "", tuple(ids), ms + at, paths=paths, titles=titles)
    run = {query: answer.ids for query, answer in answers.items()}
    return Outcome(name, Judge(QRELS).quality(run), run, answers)


@pytest.fixture(scope="module")
def page():
    return report("<small> data", [outcome("bm25", 3, 5.0), outcome("<rrf>", 1, 80.0)], QRELS, QUERIES)


class Checker(HTMLParser):
    """Notes open tags and addresses."""

    VOID = frozenset({"meta", "link", "br", "circle", "line", "rect", "polyline"})

    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID or tag in ("circle", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_self_contained(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.addresses == ["data:,"]
    assert not re.search(r"@import|url\(|https?://", page)


def test_texts_of_users_are_escaped(page):
    assert "<script>alert" not in page
    assert "<rrf>" not in page
    assert "&lt;rrf&gt;" in page


def test_documents_are_shown_by_their_titles(page):
    assert "Paper &lt;zero&gt;" in page


def test_the_same_outcomes_give_the_same_page(page):
    again = report("<small> data", [outcome("bm25", 3, 5.0), outcome("<rrf>", 1, 80.0)], QRELS, QUERIES)
    assert again == page


def test_means_have_error_bars_and_axes_round_numbers(page):
    """Each dot has its 95 % interval; every tick is a number that a person would choose."""
    assert page.count('<line class="error"') == 2 * 2 * 3  # pipelines, wide and narrow, a bar and two caps
    assert "with its 95 % interval" in page
    ticks = [float(text) for text in re.findall(r'text-anchor="end">(-?[\d.]+)</text>', page)]
    assert ticks
    assert all(len(f"{tick:g}".lstrip("-0.")) <= 3 for tick in ticks), ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.612, 0.883, [0.65, 0.7, 0.75, 0.8, 0.85]),
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.4301, 0.4512, [0.435, 0.44, 0.445, 0.45]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    assert _ticks(low, high) == ticks
    around = _ticks(-high, high, outside=True)
    assert around[0] <= -high
    assert around[-1] >= high


def test_the_page_describes_the_run():
    facts = {"date": "2026-11-16 12:00 UTC", "command": "resift eval <data>", "models": "a/b", "versions": "1"}
    page = report("t", [outcome("bm25", 3, 5.0)], QRELS, QUERIES, facts=facts)
    assert "<dt>command</dt><dd>resift eval &lt;data&gt;</dd>" in page
    assert all(f"<dt>{name}</dt>" in page for name in facts)


def test_run_files_without_latency_or_paths_have_a_page():
    run = {query: ["d1", "d2"] for query in QRELS}
    bare = [Outcome(name, Judge(QRELS).quality(run), run, {}) for name in ("a", "b")]
    page = report("runs", bare, QRELS, {})
    assert "No query changed." in page
    assert "p50" not in page
    single = report("runs", bare[:1], QRELS, {})
    assert "Differences" not in single


FRAME = """<!doctype html><body style="margin:0"><iframe id=f width=%d height=%d style="border:0"></iframe>
<pre id=out></pre><script>
var errors = [], frame = document.getElementById("f");
var watch = "<script>window.onerror = function (m) { parent.errors.push(m); };<\\/script>";
frame.srcdoc = %s.replace("<head>", "<head>" + watch);
frame.onload = function () {
  var page = frame.contentDocument, small = 0;
  var texts = page.querySelectorAll("td, th, p, h1, h2, h3, summary, svg text.name, svg text.tick");
  texts.forEach(function (el) {
    var box = el.getBoundingClientRect();
    if (box.width && parseFloat(frame.contentWindow.getComputedStyle(el).fontSize) < 11) small++;
  });
  var plots = Array.from(page.querySelectorAll("svg.wide, svg.narrow")).filter(function (el) {
    return el.getBoundingClientRect().width;
  });
  var examples = Array.from(page.querySelectorAll("[data-part=example]"));
  document.getElementById("out").textContent = JSON.stringify({
    errors: errors, small: small, plots: plots.length, scroll: page.documentElement.scrollWidth,
    widest: Math.max.apply(null, plots.map(function (el) { return el.getBoundingClientRect().right; })),
    sections: examples.filter(function (el) { return !el.hidden; }).length
  });
};
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.slow
def test_the_page_fits_its_window_and_has_no_script_errors(page, tmp_path, width, height):
    """In headless Chromium: nothing wider than the window, no tiny text, one example shown at a time."""
    source = json.dumps(page).replace("</", "<\\/")
    (tmp_path / "frame.html").write_text(FRAME % (width, height, source), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    done = subprocess.run(
        [
            BROWSER,
            *flags,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=3000",
            f"--window-size={max(width, 500)},{height}",
            "--dump-dom",
            (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)[1])
    assert found["errors"] == []
    assert found["small"] == 0
    assert found["plots"] == 2
    assert found["scroll"] <= width
    assert found["widest"] <= width
    assert found["sections"] == 1


def test_a_tiny_p_is_a_bound_as_on_the_terminal():
    """All 40 queries improve: p is below 0.0001, on the page too."""
    qrels = {f"q{at}": {"d": 1} for at in range(40)}

    def ranked(ids):
        run = dict.fromkeys(qrels, ids)
        return Outcome(ids[0], Judge(qrels).quality(run), run, {})

    text = report("data", [ranked(("x", "d")), ranked(("d", "x"))], qrels, {})
    assert "<td>&lt;0.0001</td>" in text
    assert "<td>0.0000</td>" not in text
