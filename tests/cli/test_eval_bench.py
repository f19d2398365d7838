"""`resift bench` finds the benchmarks of a checkout, and explains what to do without one."""

from __future__ import annotations

import json

from resift.cli.main import main
from tools.build_results import write_page


def test_bench_without_a_checkout_explains_what_to_do(tmp_path, capsys):
    assert main(["bench", "--quick", "--checkout", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "not a checkout of Resift" in message
    assert "resift bench --quick" in message


def test_an_unknown_benchmark_is_rejected(capfd):
    assert main(["bench", "fussion"]) == 2
    assert "known: fusion" in capfd.readouterr().err


def test_the_summary_shows_every_value(tmp_path):
    (tmp_path / "results").mkdir()
    data = {
        "date": "2026-01-01",
        "machine": {"cores": 2, "processor": "P", "system": "S"},
        "versions": {"resift": "0.1.0"},
        "median_ms": {"rrf": 0.123456, "rbc": 2},
        "race": {"short": {"ours": 1.0, "theirs": 3.5}, "long": {"ours": 2.0, "theirs": 9.0}},
        "met": True,
        "growth": [{"size": 1, "ms": 2.5}],
    }
    (tmp_path / "results/one.json").write_text(json.dumps(data))
    (tmp_path / "results/two.json").write_text("{}")
    page = write_page(["one", "absent"], tmp_path).read_text()
    assert "More results: [two](results/two.json)." in page
    for wanted in (
        "## one",
        "2 cores, P, S",
        "| rrf | 0.1235 |",
        "| met | yes |",
        "| short | 1 | 3.5 |",
        "| 1 | 1 | 2.5 |",
    ):
        assert wanted in page
