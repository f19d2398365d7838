"""Completion scripts in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from resift.cli.main import COMMANDS, main

PROBE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_resift
echo "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(capsys, tmp_path):
    def generate_script(shell: str) -> str:
        assert main(["completion", shell]) == 0
        path = tmp_path / f"resift.{shell}"
        path.write_text(capsys.readouterr().out)
        return str(path)

    return generate_script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["resift", "sea"], "search"),
        (["resift", "config", "ch"], "check"),
        (["resift", "rerank", "--dead"], "--deadline"),
        (["resift", "config", "check", "--js"], "--json"),
        (["resift", "completion", "z"], "zsh"),
        (["resift", "--ver"], "--version"),
        (["resift", "fuse", "--method", "comb-s"], "comb-sum"),
        (["resift", "fuse", "a.run", "--dialect", "lang"], "langchain"),
        (["resift", "batch", "em"], "embed"),
    ],
)
def test_bash_completes_commands_and_options(script, words, offered, tmp_path):
    done = subprocess.run(
        ["bash", "-c", PROBE, "bash", script("bash"), *words], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert (done.stdout.split()[:1], done.stderr) == ([offered], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_every_command_and_parse(script, shell):
    path = script(shell)
    with open(path) as file:
        text = file.read()
    assert all(name in text for name in COMMANDS)
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
