"""`resift bench` finds the benchmarks of a checkout, and explains what to do without one."""

from __future__ import annotations

from resift.cli.main import main


def test_without_a_checkout_it_says_what_to_do(tmp_path, capsys):
    assert main(["bench", "--quick", "--checkout", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "no checkout of Resift" in told
    assert "resift bench --quick" in told


def test_an_unknown_benchmark_is_refused(capfd):
    assert main(["bench", "fussion"]) == 2
    assert "known: fusion" in capfd.readouterr().err
