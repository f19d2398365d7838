"""`resift doctor`: findings, the next step, and the exit code."""

from __future__ import annotations

import json

import pytest
from packaging.requirements import Requirement

from resift.cli import doctor as checks
from resift.cli.doctor import Finding, check_extra
from resift.cli.main import main
from resift.errors import install_command


def doctor(capsys, *words: str) -> tuple[int, dict]:
    code = main(["doctor", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def without_models(monkeypatch):
    """Leave out the model files, whose digests take seconds."""
    monkeypatch.setattr(checks, "check_models", list)


def test_findings_cover_extras_models_and_a_self_test(capsys):
    code, message = doctor(capsys)
    found = {one["name"]: one for one in message["findings"]}
    if found["local"]["state"] == "ok":
        assert found["reranking"]["state"] == "ok"
        assert found["cross-encoder/ms-marco-MiniLM-L-12-v2"]["state"] == "ok"
        assert message["next"] == "resift demo"
    groups = {one["group"] for one in message["findings"]}
    assert groups == {"extra", "model", "self-test"}
    assert {"local", "hosted", "eval"} <= {one["name"] for one in message["findings"]}
    assert "dev" not in {one["name"] for one in message["findings"]}
    assert code == (0 if message["ok"] else 1)


def test_extras_are_checked_for_presence_and_version():
    assert check_extra("x", [Requirement("PyYAML>=6")]).state == "ok"
    assert check_extra("x", [Requirement("PyYAML>=999")]).state == "broken"
    gone = check_extra("x", [Requirement("PyYAML>=6"), Requirement("no-such-package-at-all>=1")])
    assert (gone.state, gone.fix) == ("absent", install_command("x"))


def test_a_required_extra_must_be_installed(capsys, monkeypatch, without_models):
    """Exit code 1 and the pip line when a named extra is absent; 0 when it was not named."""
    real = checks.read_extras()
    moon = [Requirement("no-such-package-at-all")]
    monkeypatch.setattr(checks, "read_extras", lambda: {**real, "moon": moon})
    assert doctor(capsys)[0] == 0
    code, message = doctor(capsys, "moon")
    assert (code, message["next"]) == (1, install_command("moon"))


def test_a_broken_finding_gives_exit_code_1(capsys, monkeypatch):
    damaged = Finding("model", "m", "broken", "m: bytes were changed")
    monkeypatch.setattr(checks, "check_models", lambda: [damaged])
    code, message = doctor(capsys)
    assert (code, message["ok"]) == (1, False)


def test_unknown_extras_are_rejected(capsys):
    assert main(["doctor", "locl"]) == 1
    assert "Did you mean 'local'?" in capsys.readouterr().err
