"""What people see, command by command: on terminals of 60 and 100 columns, and in a pipe.

The golden files in screens/ are looked at by a person when they change:

    RESIFT_UPDATE_SCREENS=1 python -m pytest tests/cli/test_screens.py && git diff tests/cli/screens
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from resift.cli.main import COMMANDS
from resift.text.snippets import display_width
from tests.cli.screen_shots import MARK, SCREENS

pytestmark = pytest.mark.real_model

GOLDEN = Path(__file__).parent / "screens"
OUTPUTS = ("60", "100", "pipe")
UPDATE = bool(os.environ.get("RESIFT_UPDATE_SCREENS"))

VOLATILE = [
    (re.compile(r"/\S*?/screens\d+/(60|100|pipe)/"), "/HERE/"),
    (re.compile(r"\b\d+(\.\d+)?\s(m?s|min|h)\b"), r"N \2"),
    (re.compile(r"Resift \d[^\n]*"), "Resift VERSION"),
    (re.compile(r"(?m)^([✓·] \S+)[^\n]*(\n  [^\n]*)*"), r"\1 …"),  # what is installed, in which version
    (re.compile(r"\d+ passages/s"), "N passages/s"),
    (re.compile(r"Known: [^\n]*"), "Known: …"),  # every plugin and key there is
    (re.compile(r"(http://[\d.]+:)\d+"), r"\1PORT"),
    (re.compile(r'"id":"[0-9a-f]{32}"|"ms":[\d.]+|"version":"[^"]+"'), "…"),
    (re.compile(r'("\w+":|\\"\w+\\": )-?\d+\.\d{4,}'), r"\1N"),  # scores in JSON
]

FOR_PROGRAMS = ("completion", "mcp")
"""Commands whose output a shell or an assistant reads."""


@pytest.fixture(scope="module")
def screens(tmp_path_factory) -> dict[str, dict[str, str]]:
    """Output -> command -> everything it showed."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("ladybug")
    shown = take_screens(tmp_path_factory.mktemp("screens"))
    return {output: by_command(text) for output, text in shown.items()}


def take_screens(folder: Path) -> dict[str, str]:
    """Run all commands on all outputs and return what arrived there."""
    ends = {output: os.pipe() if output == "pipe" else terminal(int(output)) for output in OUTPUTS}
    shown: dict[str, str] = {}
    readers = [
        threading.Thread(target=lambda name=name, end=end: shown.update({name: read_all(end)}))
        for name, (end, _) in ends.items()
    ]
    env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "XDG_CACHE_HOME": str(folder / "cache")}
    env.pop("COLUMNS", None)
    words = [f"{other}={name}" for name, (_, other) in ends.items()]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.screen_shots", str(folder), *words],
        pass_fds=[other for _, other in ends.values()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
    )
    for _, other in ends.values():
        os.close(other)
    for reader in readers:
        reader.start()
    try:
        _, err = child.communicate(timeout=900)
    finally:
        child.kill()
    for reader in readers:
        reader.join(timeout=30)
    assert child.returncode == 0, err.decode()
    return shown


def terminal(columns: int) -> tuple[int, int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    return master, slave


def read_all(end: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(end, 65536)
        except OSError:  # Linux says so when the other end of a terminal is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(end)
    return b"".join(parts).decode().replace("\r\n", "\n")


def by_command(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    pieces = re.split(f"{MARK}([^{MARK}]+){MARK}", text)[1:]
    for command, shown in zip(pieces[::2], pieces[1::2], strict=True):
        found[command] = found.get(command, "") + f"$ resift {shown}\n"
    return found


def normalize(text: str) -> str:
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text


def test_every_command_is_shown():
    assert set(SCREENS) == set(COMMANDS) - {"models"}  # tests/cli/test_models.py shows its output


@pytest.mark.parametrize("command", SCREENS)
def test_screens_match_the_golden_files(command, screens):
    titles = {output: "in a pipe" if output == "pipe" else f"{output} columns" for output in OUTPUTS}
    now = "\n".join(f"━━━ {title} ━━━\n{normalize(screens[output][command])}" for output, title in titles.items())
    path = GOLDEN / f"{command}.txt"
    if UPDATE:
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("output", OUTPUTS[:-1])
@pytest.mark.parametrize("command", [command for command in SCREENS if command not in FOR_PROGRAMS])
def test_screens_fit(command, output, screens):
    """No line of output is wider than the terminal, but for one long word: an id is not cut by --ids."""
    lines = [
        line for line in screens[output][command].splitlines() if not line.startswith(("$ resift", "2> ", "exit code"))
    ]
    wide = [line for line in lines if display_width(line) > int(output) and " " in line]
    assert not wide, wide


@pytest.mark.parametrize("command", FOR_PROGRAMS)
def test_output_for_programs_does_not_depend_on_the_terminal(command, screens):
    first, *others = (normalize(screens[output][command]) for output in OUTPUTS)
    assert others == [first] * len(others)


@pytest.mark.parametrize("command", SCREENS)
def test_pipes_get_no_color_braille_or_json(command, screens):
    text = screens["pipe"][command]
    assert "\x1b" not in text
    assert not any(0x2800 <= ord(char) <= 0x28FF for char in text)
