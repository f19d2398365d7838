"""`resift demo` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from resift import demo as running
from resift.cli.main import main
from resift.errors import MissingExtraError, install_command


@pytest.fixture
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str, *, extra: str) -> None:
        raise MissingExtraError(module, extra)

    monkeypatch.setattr(running, "require", refuse)


@pytest.fixture
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    every = running.questions
    monkeypatch.setattr(running, "questions", lambda: every()[42:48])


def test_without_models_the_demo_names_the_extra_to_install(without_models, capsys, monkeypatch):
    """Words alone are searched, visibly; the exit code is 0."""
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert install_command("local") in err
    assert "BM25 (words)" in out
    assert "default pipeline" not in out


def test_json_and_page(without_models, capsys, tmp_path):
    page = tmp_path / "demo.html"
    assert main(["demo", "--json", "--question", "fog horn at night", "--page", str(page)]) == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["passages"], message["questions"]) == (231, 60)
    assert "chat/c09" in {hit["id"] for hit in message["ranking"]["hits"]}
    assert "fog horn at night" in page.read_text()


def test_an_empty_question_is_rejected(without_models, capsys):
    assert main(["demo", "--question", " "]) == 1
    assert "The query is empty" in capsys.readouterr().err


@pytest.mark.real_model
def test_terminal_output_has_rank_flow_and_quality(few_questions, capsys, monkeypatch, tmp_path: Path):
    """The rank flow of one question with reasons, then the table over all."""
    if running.missing_models():
        pytest.skip(running.missing_models())
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # Every hit of the ranking has its line, the answer the first.
    lines = [re.search(rf"(?m)^ {{1,2}}{place} .*", out) for place in range(1, 11)]
    assert all(lines)
    assert "handbook/notice" in lines[0][0]
    assert "(answers the question)" in out
    for name in (
        "BM25 (words)",
        "dense (vectors)",
        "both, fused by RRF",
        "fused, cross-encoder only",
        "default pipeline",
    ):
        assert name in out
