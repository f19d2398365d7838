"""What holds for every command: help, one-line errors, exit codes, whole files, terminals, pipes."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resift.cli.main import _MODULES, COMMANDS, build_parser, main
from resift.demo import EXAMPLE_QUESTION
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.ranking.fusion.dialects import DIALECTS
from resift.ranking.fusion.score_based import NORMALIZATIONS
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.server import Limits

# How each command that reads a file is called with one; the place of the file is written FILE.
READERS = {
    "ask": ["ask", "q", "--pack", "FILE"],
    "calibrate": ["calibrate", "FILE"],
    "compare": ["compare", "FILE", "FILE", "--qrels", "FILE"],
    "config": ["config", "check", "FILE"],
    "eval": ["eval", "--qrels", "FILE", "FILE"],
    "explain": ["explain", "FILE"],
    "fuse": ["fuse", "FILE"],
    "graph": ["graph", "build", "FILE", "-o", "out.pack"],
    "index": ["index", "FILE", "--store", "out.db", "--text-only"],
    "init": ["init", "--store", "FILE", "-o", "out.yaml"],
    "record": ["record", "FILE", "-o", "out.jsonl"],
    "report": ["report", "cost", "FILE"],
    "rerank": ["rerank", "q", "FILE"],
    "search": ["search", "q", "--store", "FILE", "--text-only"],
    "serve": ["serve", "--port", "0", "--pipeline", "FILE"],
    "tune": ["tune", "FILE"],
}
NO_FILE = {"batch", "bench", "mcp", "models", "serve", "store", "completion", "demo", "doctor"}
NEEDS = {"ask": "ladybug", "graph": "ladybug", "eval": "ir_measures", "compare": "ir_measures"}


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = main(list(words))
    except SystemExit as exc:
        code = int(exc.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def python_resift(*words: str, **options) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "resift.cli.main", *words], **options)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_known_to_these_tests():
    assert set(READERS) | NO_FILE == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name, capsys):
    """`resift COMMAND --help` shows what it does, its options and examples that name it."""
    code, out, err = call(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert "examples:" in out
    assert f"  resift {name}" in out or f"resift {name} " in out
    assert COMMANDS[name]["summary"][1:] in " ".join(out.split())


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_help_fits_the_terminal(columns, capsys, monkeypatch):
    """Prose is wrapped, a second column continues below itself, and a broken command reports its error."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ([], *([name] for name in COMMANDS)):
        _, out, _ = call(capsys, *words, "--help")
        body = out.partition("\n\n")[2]  # argparse writes the usage by itself
        wide = [line for line in body.splitlines() if len(line) > columns]
        assert not wide, (words, wide)
    _, out, _ = call(capsys, "rerank", "--help")
    assert ('costs?" \\\n' in out) == (columns == 80)


@pytest.mark.parametrize("words", [["--help"], ["search", "--help"], ["serve", "--help"]])
def test_help_is_fast(words):
    """Help takes under 0.3 s of processor time, and loads no third-party package."""
    program = (
        "import sys, time\n"
        "from resift.cli.main import main\n"
        f"try:\n    main({words})\nexcept SystemExit:\n    pass\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "heavy = {'numpy', 'yaml', 'onnxruntime', 'httpx'}\n"
        "print(time.process_time(), sorted(roots & heavy), file=sys.stderr)\n"
    )
    for _ in range(3):  # a busy machine may need another try
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds, heavy = done.stderr.split(maxsplit=1)
        assert heavy == "[]\n"
        if float(seconds) < 0.3:
            break
    assert float(seconds) < 0.3


def test_every_command_has_a_function():
    for name in COMMANDS:
        module = importlib.import_module(f"resift.cli.{_MODULES.get(name, name)}")
        assert callable(getattr(module, f"run_{name}"))


def test_defaults_in_the_help_are_those_of_the_library():
    args = build_parser().parse_args(["serve"])
    limits = dataclasses.asdict(Limits())
    assert {name: value for name, value in vars(args).items() if name in limits}.items() <= limits.items()
    assert args.embedder == DEFAULT_EMBEDDER
    assert DEFAULT_MODEL in str(COMMANDS["serve"])
    assert build_parser().parse_args(["demo"]).question == EXAMPLE_QUESTION
    suggested = {option[0]: option[2].get("suggestions") for option in COMMANDS["fuse"]["options"] if len(option) > 2}
    assert suggested["--normalize NAME"] == sorted(NORMALIZATIONS)
    assert suggested["--dialect ENGINE"] == sorted(DIALECTS)


@pytest.mark.parametrize("bad", ["missing", "empty", "binary"])
@pytest.mark.parametrize("name", READERS)
def test_bad_files_are_reported_in_one_line(name, bad, place, capsys):
    """A missing, empty or binary file: exit code 1, one line that names it, nothing written."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    file = place / f"{bad}.jsonl"
    if bad != "missing":
        file.write_bytes(b"" if bad == "empty" else bytes(range(256)) * 8)
    before = file.read_bytes() if file.exists() else None
    words = [file.name if word == "FILE" else word for word in READERS[name]]
    code, out, err = call(capsys, *words)
    assert code == 1
    lines = err.splitlines()
    if name == "config":
        assert lines.pop() == "1 mistake"
    assert len(lines) == 1, err
    assert bad in lines[0]
    assert "Traceback" not in err
    assert "Traceback" not in out
    assert (file.read_bytes() if file.exists() else None) == before
    assert not list(place.glob("*.part")) + list(place.glob(".*.part"))
    assert not (place / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["serch"], "Did you mean 'search'?"),
        (["search", "q", "-k", "0"], "integer ≥ 1"),
        (["rerank", "q", "f.txt", "-k", "-3"], "integer ≥ 1"),
        (["fuse", "f.jsonl", "-k", "0"], "integer ≥ 1"),
        (["rerank", "q", "f.txt", "--deadline", "nan"], "seconds above 0"),
        (["completion", "tcsh"], "invalid choice"),
        (["config"], "required: ACTION"),
    ],
)
def test_wrong_usage_prints_one_line_and_exits_with_2(words, expected, place, capsys):
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert expected in err


def test_no_command_shows_the_overview(capsys):
    code, out, err = call(capsys)
    assert (code, out) == (2, "")
    assert "resift demo" in err


RANKING = {
    "hits": [{"id": "a", "text": "alpha", "score": 1.0}],
    "trace": [{"kind": "fuse", "name": "rrf", "ids": ["a"], "scores": [1.0]}],
}


def writers(place: Path) -> dict[str, list[str]]:
    """Commands that write a file whose place is said by an option, ready to work but for that place."""
    (place / "ranking.json").write_text(json.dumps(RANKING))
    (place / "judged.jsonl").write_text('{"score": 1, "label": 1}\n{"score": 0, "label": 0}\n')
    (place / "text.txt").write_text("some words\n")
    return {
        "explain": ["explain", "ranking.json", "-o", "PLACE/page.html"],
        "calibrate": ["calibrate", "judged.jsonl", "-o", "PLACE/calibration.json"],
        "index": ["index", "text.txt", "--text-only", "--store", "PLACE/store.db"],
    }


@pytest.mark.parametrize("name", ["explain", "calibrate", "index"])
@pytest.mark.parametrize("obstacle", ["a file", "nothing", "a locked folder"])
def test_unwritable_outputs_are_reported(name, obstacle, place, capsys):
    """An output that cannot be written: exit code 1, one line that names it, nothing left behind."""
    target = place / "place"
    if obstacle == "a file":
        target.write_text("kept")
    elif obstacle == "a locked folder":
        target.mkdir(mode=0o500)
        if os.access(target, os.W_OK):
            pytest.skip("this user may write everywhere")
    words = [word.replace("PLACE", "place") for word in writers(place)[name]]
    code, out, err = call(capsys, *words)
    if name == "index" and obstacle == "nothing" and code == 0:
        assert (target / "store.db").exists()  # index makes the folder
        return
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "place" in err
    assert ".part" not in err
    if obstacle == "a file":
        assert target.read_text() == "kept"


def test_an_interrupted_write_leaves_the_old_file(place, monkeypatch):
    """A file is replaced whole or not at all."""
    from resift._internal.files import atomic_write

    target = place / "kept.txt"
    target.write_text("old")
    monkeypatch.setattr(Path, "replace", lambda self, other: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        atomic_write(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in place.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("words", [["explain", "-"], ["rerank", "q", "-"]])
def test_ctrl_c_ends_with_130(words, place):
    """Ctrl-C while waiting for input: one line, exit code 130, no traceback."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with python_resift(*words, **pipes) as started:
        try:
            wait_until_reading(started.pid)
            started.send_signal(signal.SIGINT)
            out, err = started.communicate(timeout=30)
        finally:
            started.kill()
    assert (started.returncode, out) == (130, b"")
    assert err == b"resift: interrupted\n"


def test_ctrl_c_during_work_ends_with_130(place):
    """Ctrl-C while stores are open: they are closed, temporary files go, one line is expected."""
    env = {**os.environ, "TMPDIR": str(place)}
    with python_resift("demo", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as started:
        try:
            until = time.monotonic() + 30
            while not list(place.glob("resift-demo-*/sample.db")) and time.monotonic() < until:
                time.sleep(0.002)
            started.send_signal(signal.SIGINT)
            out, err = started.communicate(timeout=30)
        finally:
            started.kill()
    assert (started.returncode, out, err) == (130, b"", b"resift: interrupted\n")
    assert not list(place.glob("resift-demo-*"))


def test_ctrl_c_does_not_wait_for_threads(place):
    """A thread that loads a model or writes an index cannot be stopped: the command ends without it."""
    program = """
import asyncio, os, signal, sys, threading, time
from resift.cli import doctor, main
from resift._internal.sync import run_sync

def run(args):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    return run_sync(asyncio.to_thread(time.sleep, 60))

doctor.run_demo, sys.argv = run, ["resift", "demo"]
sys.exit(main.main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=40, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"resift: interrupted\n")


def wait_until_reading(pid: int) -> None:
    """Wait until the process sleeps in a read of its standard input, as Linux tells it."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            call_number, first, *_ = Path(f"/proc/{pid}/syscall").read_text().split()
        except (OSError, ValueError):
            call_number = first = ""
        if (call_number, first) == ("0", "0x0"):
            return
        time.sleep(0.005)
    pytest.skip("cannot see what the process waits for on this system")


def test_a_closed_pipe_is_not_an_error(place):
    """`resift completion bash | head -1` ends quietly."""
    read, write = os.pipe()
    os.close(read)
    started = python_resift("completion", "fish", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _, err = started.communicate(timeout=30)
    assert (started.returncode, err) == (0, b"")


class Terminal(io.StringIO):
    """Stands for a terminal; tests/cli/test_screens.py has real ones."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(*words: str, columns: int, color: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run a command on a terminal of that width and return exit code and output."""
    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("NO_COLOR", "" if color else "1")
        patch.setattr(sys, "stdout", screen)
        code = main(list(words))
    return code, screen.getvalue()


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "words",
    [
        ["explain", "ranking.json"],
        ["calibrate", "judged.jsonl"],
        ["fuse", "list.jsonl"],
        ["search", "alpha", "--store", "store.db", "--text-only"],
    ],
    ids=lambda words: words[0],
)
def test_terminal_output_fits_the_width(words, columns, place, monkeypatch):
    """On a terminal there are tables, within 40 columns too, in color unless NO_COLOR is set."""
    writers(place)
    rows = [{"id": f"a-long-identifier-{n}", "text": "alpha " * 30, "score": 1 / n} for n in (1, 2)]
    (place / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if words[0] == "search":
        assert main(["index", "list.jsonl", "--text-only", "--store", "store.db"]) == 0
    code, plain = on_a_terminal(*words, columns=columns, color=False, monkeypatch=monkeypatch)
    assert code == 0
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= columns, plain
    code, colored = on_a_terminal(*words, columns=columns, color=True, monkeypatch=monkeypatch)
    assert "\x1b[" in colored


PIPED = [["explain", "ranking.json"], ["calibrate", "judged.jsonl"], ["fuse", "list.jsonl"]]


@pytest.mark.parametrize("words", PIPED, ids=lambda words: words[0])
def test_pipes_get_text_without_color_or_braille(words, place, capsys):
    """Output into a pipe is text too: no escape codes, no braille, JSON only with --json."""
    writers(place)
    (place / "list.jsonl").write_text('{"id": "a"}\n')
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert out.strip()
    assert "\x1b" not in out
    assert not any(0x2800 <= ord(char) <= 0x28FF for char in out)
    with pytest.raises(json.JSONDecodeError):
        json.loads(out)
    code, out, _ = call(capsys, *words, "--json")
    assert json.loads(out)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["search", "foo", "--limit", "5"], "Did you mean -k? See: resift search --help"),
        (["search", "foo", "--stor", "x.db", "--explian"], "Did you mean --explain?"),
        (["config", "check", "x.yaml", "--verbose"], "See: resift config --help"),
    ],
)
def test_unknown_options_get_a_suggestion(words, part, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert part in capsys.readouterr().err


def test_an_unknown_language_gets_the_list_of_languages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("Text.")
    assert main(["index", "a.txt", "--store", "a.db", "--text-only", "--language", "klingon"]) != 0
    expected = capsys.readouterr().err
    assert "german" in expected
    assert "Did you mean" not in expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Open it with text_only=True.", "Open it with --text-only."),
        ("Open it by words (text_only=True, --text-only).", "Open it by words (--text-only)."),
        ("Pass create=True.", "Pass create=True in Python."),
        ("Pass allow_loopback=True.", "Pass allow_loopback=True in Python."),
        ("Call resift.models.allow_local.", "Call resift.models.allow_local in Python."),
        ("nothing=Truely, x=True1", "nothing=Truely, x=True1"),
    ],
)
def test_python_arguments_become_flags_that_the_command_has(message, expected):
    """`some_flag=True` is advice for Python; a shell gets `--some-flag` if the command has that option."""
    from resift.cli.main import to_shell_terms

    assert to_shell_terms(message, ["--text-only", "-k"]) == expected


def test_a_failing_command_suggests_only_its_own_flags(place, capsys):
    """`ask` has --allow-loopback; no command has a flag for a custom model."""
    words = ["ask", "x", "--store", "any.db", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m"]
    index = place / "any.db"
    note = place / "any.txt"
    note.write_text("A note.")
    assert main(["index", str(note), "--store", str(index), "--text-only"]) == 0
    capsys.readouterr()
    words[3] = str(index)
    assert main(words) == 1
    expected = capsys.readouterr().err
    assert "--allow-loopback" in expected
    assert "=True" not in expected
    assert main(["rerank", "x", str(note), "--model", "nobody/knows"]) == 1
    expected = capsys.readouterr().err
    assert "allow_local in Python" in expected or "allow_local" not in expected
