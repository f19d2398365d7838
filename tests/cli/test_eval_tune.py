"""`resift record` and `resift tune` from the outside."""

from __future__ import annotations

import json

import pytest
import yaml

from resift.cli.main import main
from resift.evaluation import read_collection
from resift.pipeline import Pipeline
from tests.evaluation.small import QRELS, write_collection


@pytest.fixture
def recording(tmp_path, capsys):
    folder = write_collection(tmp_path / "small")
    out = tmp_path / "run.jsonl"
    words = ["record", str(folder), "--pipeline", "bm25", "-o", str(out), "--cache", str(tmp_path / "cache")]
    words.append("--json")
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"recording": str(out), "queries": 5, "new": 5}
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["new"] == 0
    return out


def test_tuning_reports_on_held_out_queries(recording, tmp_path, capsys):
    best = tmp_path / "best.yaml"
    assert main(["tune", str(recording), "--budget", "20", "--yaml", str(best), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["train"]["queries"] + data["held_out"]["queries"] == len(QRELS)
    assert data["tried"] <= 20
    assert data["adopt"] is False
    # The verdict is to keep the default, so that is what the file has.
    assert best.read_text().startswith("# The default pipeline")
    assert not yaml.safe_load(best.read_text()).keys() & {"fusion", "guard", "gate"}
    # The file is whole: it names the stores that were recorded, and answers from anywhere.
    assert main(["config", "check", str(best)]) == 0
    question = next(iter(read_collection(tmp_path / "small").queries.values()))
    assert Pipeline.from_yaml(best).rank(question).ids


def test_tuning_a_pipeline_file_writes_its_stores(tmp_path, capsys, monkeypatch):
    """Relative paths stay right wherever the best setting is written."""
    folder = write_collection(tmp_path / "small")
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    notes = home / "notes.md"
    notes.write_text("# Zebras\n\nA zebra has stripes.\n")
    assert main(["index", str(notes), "--store", str(home / "notes.db"), "--text-only"]) == 0
    pipeline = home / "mine.yaml"
    pipeline.write_text("stores: [{name: notes, kind: sqlite, path: notes.db, mode: text}]\n")
    out = tmp_path / "run.jsonl"
    words = ["record", str(folder), "--pipeline", str(pipeline), "-o", str(out)]
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 0
    best = elsewhere / "best.yaml"
    assert main(["tune", str(out), "--budget", "5", "--yaml", str(best)]) == 0
    monkeypatch.chdir(elsewhere)
    (store,) = yaml.safe_load(best.read_text())["stores"]
    assert store["path"] == str(home / "notes.db")
    assert main(["config", "check", "best.yaml"]) == 0


def test_tuning_rejects_overlapping_splits(recording, capsys):
    assert main(["tune", str(recording), "--train", "test", "--test", "test"]) == 1
    assert "must not be evaluated" in capsys.readouterr().err
    assert main(["tune", str(recording), "--train", "test"]) == 1
    assert "both --train and --test" in capsys.readouterr().err


def test_the_best_setting_is_a_valid_pipeline_file(tmp_path):
    """With stores added, `resift config check` accepts what tune writes."""
    from resift.cli.tune import tuned_yaml
    from resift.config import load_plain
    from resift.evaluation.recording import Header, Setting

    header = Header(stores=("docs.text", "docs.vectors"), reranker="cross-encoder", depth=20, k=10)
    (tmp_path / "docs.db").touch()
    stores = [{"name": "docs", "kind": "sqlite", "path": str(tmp_path / "docs.db")}]
    settings = [
        Setting(weights=(1.0, 2.0), depth=10),
        Setting(method="linear", blend=None),
        Setting(depth=0),
        Setting(blend="rank", blend_weight=0.3),
        Setting(method="weighted", depth=5),
    ]
    for setting in settings:
        read = load_plain({**yaml.safe_load(tuned_yaml(setting, header)), "stores": stores})
        assert read["fusion"]["method"] == setting.method
        assert (read["rerank"] is None) == (setting.depth == 0)
        if setting.method == "weighted":
            assert read["rerank"]["depth"] is None


def test_options_without_effect_are_not_listed():
    """After weighted fusion the depth follows the scores; without a reranker there is nothing to blend."""
    from resift.evaluation.recording import Setting

    assert "depth" not in Setting(method="weighted", depth=5).plain()
    assert Setting(method="linear", depth=5).plain()["depth"] == 5
    assert Setting(method="linear", depth=0, guard=True).plain() == {"method": "linear"}


def recording_where_one_store_is_right(path, queries=60):
    """Write a recording in which the second store alone knows the answer: its weight beats the default."""
    from resift.evaluation.recording import Header, RecordedQuery, recording_line

    ids = [f"d{rank}" for rank in range(10)]
    header = Header(stores=("one", "two"), reranker="", depth=0, k=10)
    lines = [recording_line(header)]
    for number in range(queries):
        right = ids[number % 10]
        second = [right, *(id for id in ids if id != right)]
        lists = {
            name: [(id, 10.0 - rank) for rank, id in enumerate(order)]
            for name, order in (("one", ids), ("two", second))
        }
        lines.append(recording_line(RecordedQuery(f"q{number}", "test", lists, {}, {right: 1})))
    path.write_text("".join(lines))


def test_a_better_setting_is_written_as_found_by_tune(tmp_path, capsys):
    """The file has the tuned setting only if held-out queries agree, and the report says which it has."""
    run, best = tmp_path / "run.jsonl", tmp_path / "best.yaml"
    recording_where_one_store_is_right(run)
    assert main(["tune", str(run), "--budget", "60", "--yaml", str(best), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["adopt"] is True
    assert data["held_out"]["difference"] > 0
    assert best.read_text().startswith("# Found by resift tune")
    written = yaml.safe_load(best.read_text())
    assert written["fusion"]["method"] == data["best"]["method"]
    assert written["fusion"]["weights"]["two"] > written["fusion"]["weights"]["one"]
    assert main(["tune", str(run), "--budget", "60", "--yaml", str(best)]) == 0
    assert "tuned pipeline" in capsys.readouterr().out


@pytest.mark.slow
def test_ratings_of_users_tune_an_index(tmp_path, capsys):
    """A handful of ratings changes nothing, with a message; the written file is a complete pipeline."""
    notes = tmp_path / "notes.md"
    notes.write_text("# Zebras\n\nA zebra has stripes.\n\n# Lions\n\nA lion has a mane.\n")
    index, thumbs, best = (tmp_path / name for name in ("notes.db", "thumbs.jsonl", "best.yaml"))
    assert main(["index", str(notes), "--store", str(index), "--text-only"]) == 0
    rows = [{"question": f"stripes {at}?", "id": "notes.md#0", "good": True} for at in range(3)]
    thumbs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    capsys.readouterr()
    words = ["tune", str(index), "--clicks", str(thumbs), "--yaml", str(best)]
    assert main(words) == 0
    message = capsys.readouterr().out
    assert "3 queries, 3 good hits, 0 bad ones" in message
    assert "The default is kept: 3 queries are too few" in message
    assert "default pipeline" in message
    assert "Found by" not in best.read_text()
    assert main(["config", "check", str(best)]) == 0
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 3
