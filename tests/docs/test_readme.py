"""The README's five lines work where people paste them: in a running event loop and in a notebook.

As a plain script they are run by tests/test_docs.py, with every other block. The README's figures are those
of the results.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
RESULTS = README.parent / "benchmarks" / "results"
BLIND = (
    "friendsqa", "wikiqa", "tvmanual", "trecqa", "progfaq", "conala", "redis-s", "xquad-es", "mtragun",
    "financebench",
)  # fmt: skip
"""Collections that no setting was chosen on."""


@pytest.fixture(scope="module")
def example() -> str:
    pytest.importorskip("tokenizers")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "resift.Index(" in block)


def test_five_lines_go_from_strings_to_an_explained_search(example):
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) == 5
    assert "resift.Index(" in example
    assert ".why(" in example


@pytest.mark.real_model
def test_they_run_inside_a_running_loop(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}

    async def pasted() -> None:
        exec(compile(example, "README.md", "exec"), names)
        await names["index"].aclose()

    asyncio.run(pasted())
    told = capsys.readouterr().out
    assert told.startswith("Books go back after four weeks.\n")
    assert "Cross-encoder: 1st" in told
    assert not names["ranking"].degraded


@pytest.mark.real_model
def test_they_run_in_a_notebook(example, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [nbformat.v4.new_code_cell(example), nbformat.v4.new_code_cell("ranking")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    assert "Cross-encoder: 1st" in notebook.cells[0].outputs[0]["text"]
    assert "<svg" in notebook.cells[1].outputs[0]["data"]["text/html"]


def test_headline_figures_are_those_of_the_results():
    """Quality on blind collections, CPU time per pair, and the first result of a new process."""
    text = README.read_text(encoding="utf-8")
    rows = json.loads((RESULTS / "default_table_blind.json").read_text(encoding="utf-8"))["collections"]
    means = {
        name: statistics.mean(rows[collection]["nDCG@10"][name] for collection in BLIND)
        for name in ("default", "cross-encoder", "rrf")
    }
    assert all(f"{mean:.3f}" in text for mean in means.values())
    assert f"+{means['default'] - means['rrf']:.2f} nDCG@10" in text
    page = (README.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    seconds, megabytes = re.search(r"\| resift \| ([\d.]+) \| (\d+) \|", page).groups()
    assert f"{seconds} s and with {megabytes} MB" in text
