"""Answerable questions are answered, and questions near the topic that the text does not answer are declined.

The weights in evidence.py were fitted on the development half and on the shipped sample, never on the
held-out half. The normal suite asks six questions; `python -m tests.hardening --tests` asks all 120, and
`python -m benchmarks.agent --only answerability` writes the figures of the page
`research/agent.md`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import resift

pytestmark = pytest.mark.real_model

FOLDER = Path(__file__).parent / "answerability"


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of the whole corpus."""
    pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("answerability")
    for row in read("corpus.jsonl"):
        (folder / f"{row['id']}.md").write_text(f"# {row['title']}\n\n{row['text']}\n", encoding="utf-8")
    with resift.Index(folder / "corpus.db") as index:
        index.add_files(folder)
        yield index


@pytest.fixture(scope="module")
def answers(index):
    """Every question with its answer."""
    return [(row, index.ask(row["question"])) for row in read("questions.jsonl")]


def test_a_sample_of_the_held_out_questions(index):
    """Three answerable and three near-topic questions of three documents."""
    rows = [row for row in read("questions.jsonl") if row["half"] == "held-out"]
    for answerable in (True, False):
        by_document = {row["document"]: row for row in rows if bool(row["answer"]) == answerable}
        asked = list(by_document.values())[::4]
        assert len(asked) == 3
        answers = [index.ask(row["question"]) for row in asked]
        good = [
            any(row["answer"] in sentence["text"] for sentence in answer["sentences"])
            if answerable
            else not answer["found"]
            for row, answer in zip(asked, answers, strict=True)
        ]
        assert all(good), [row["question"] for row, ok in zip(asked, good, strict=True) if not ok]


@pytest.mark.hardening
@pytest.mark.parametrize("half", ["development", "held-out"])
def test_answers_and_abstentions(answers, half):
    """At least 90 % of the answerable questions cite the right sentence, 75 % of the others are declined."""
    rows = [(row, answer) for row, answer in answers if row["half"] == half]
    right = [
        any(row["answer"] in sentence["text"] for sentence in answer["sentences"])
        for row, answer in rows
        if row["answer"]
    ]
    declined = [not answer["found"] for row, answer in rows if not row["answer"]]
    assert sum(right) >= 0.9 * len(right), f"{sum(right)} of {len(right)} answered"
    assert sum(declined) >= 0.75 * len(declined), f"{sum(declined)} of {len(declined)} declined"


@pytest.mark.hardening
def test_confidence_is_a_probability(answers):
    """Answers are right about as often as their mean confidence says."""
    given = [(row, answer) for row, answer in answers if answer["found"]]
    right = [bool(row["answer"]) and row["answer"] in answer["sentences"][0]["text"] for row, answer in given]
    mean = sum(answer["confidence"] for _, answer in given) / len(given)
    assert abs(mean - sum(right) / len(right)) < 0.15
    assert all(answer["confidence"] == 0 for _, answer in answers if not answer["found"])
