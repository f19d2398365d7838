"""`resift calibrate` and the reliability it reports."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from resift.cli.main import main
from resift.evaluation.measures import reliability
from resift.ranking.shape import Isotonic, Platt, load_calibrator


@pytest.fixture
def judgments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scores whose true probability is known: sigmoid(score - 1)."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(7)
    scores = [dice.gauss(0, 3) for _ in range(2000)]
    rows = [{"score": s, "label": int(dice.random() < 1 / (1 + math.exp(1 - s)))} for s in scores]
    file = tmp_path / "judged.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_the_fit_recovers_the_true_curve(judgments, capsys):
    assert main(["calibrate", "judged.jsonl", "-o", "c.json", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert message["held_out"] is True
    assert message["error"] < 0.05
    assert sum(one["count"] for one in message["bins"]) == 2000
    fitted = load_calibrator("c.json")
    assert fitted.probability(1.0) == pytest.approx(0.5, abs=0.05)
    assert fitted.probability(4.0) == pytest.approx(1 / (1 + math.exp(-3)), abs=0.05)


@pytest.mark.parametrize("method", ["platt", "isotonic", "temperature"])
def test_every_method_can_be_saved(judgments, method, capsys):
    assert main(["calibrate", "judged.jsonl", "--method", method, "-o", "c.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibrator"]["kind"] == method
    assert 0 <= load_calibrator("c.json").probability(0.3) <= 1


def test_reliability_is_measured_on_held_out_pairs():
    """Isotonic learns noise by heart: on its own pairs it would look perfect, held out it does not."""
    dice = random.Random(1)
    scores = [float(n) for n in range(60)]
    labels = [dice.random() < 0.5 for _ in scores]
    own = Isotonic.fit(scores, labels)
    learnt = sum((own.probability(s) - y) ** 2 for s, y in zip(scores, labels, strict=True)) / 60
    assert reliability(Isotonic.fit, scores, labels).brier > learnt
    few = reliability(Platt.fit, [0.0, 1.0], [False, True])
    assert few.held_out is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"score": "x", "label": 1}\n', 'j.jsonl:1: "score" must be a finite number'),
        ('{"score": NaN, "label": 1}\n', 'j.jsonl:1: "score" must be a finite number'),
        ('{"score": 1}\n', 'j.jsonl:1: "label" must be true, false or a grade'),
        ('{"score": 1, "label": 1}\n', "1 relevant and 0 other pairs"),
        ("[]\n", "JSON object"),
    ],
)
def test_mistakes_are_reported_in_one_line(content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("j.jsonl").write_text(content)
    assert main(["calibrate", "j.jsonl", "-o", "c.json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert not Path("c.json").exists()
