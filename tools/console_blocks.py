"""Run the `console` blocks of a documentation page.

`resift` commands run in this process, which saves the time of an interpreter. Commands with pipes and other
programs run in a shell. `resift serve` starts in the background on a free port, and later commands reach it.
Commands of programs that a test machine does not have, such as docker, are not run: see `NOT_RUN`.
`pip install` is not run either, but the extras that it names must exist.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PORT = "8787"
"""Port of `resift serve` on the pages."""

NOT_RUN = (
    "apt-get", "brew", "claude", "code", "codex", "conda", "docker", "export", "gemini", "git clone", "helm",
    "jupyter", "kubectl", "mkdocs", "npx", "podman", "python3 -m venv", "ray", "serve", "source", "sudo",
    "systemctl", "uv", "uvx", "yarn",
)  # fmt: skip
"""Programs that tests do not run: they install, need a daemon, or are not on every machine."""

SHELL = re.compile(r"[|<>;&$`(]|^\w+=")
_served: dict[str, str] = {}


@dataclass(frozen=True)
class Command:
    """One command of a console block, and where in the block its output is shown."""

    text: str
    start: int
    end: int
    exit_code: int = 0

    @property
    def has_output(self) -> bool:
        """Whether the page shows an output."""
        return self.end > self.start


def split_commands(block: str) -> list[Command]:
    """Return the commands of a block; a command continues after a backslash."""
    commands: list[Command] = []
    position, text, start = 0, "", 0
    for line in block.splitlines(keepends=True):
        if text.endswith("\\\n"):
            text, start = text + line, position + len(line)
        elif line.startswith("$ "):
            if text:
                commands.append(_command(text, start, position))
            text, start = line[2:], position + len(line)
        position += len(line)
    return [*commands, _command(text, start, position)] if text else commands


def run_commands(commands: list[tuple[str, int]]) -> None:
    """Run commands with their exit codes one after the other and print a mark between their outputs."""
    for number, (command, exit_code) in enumerate(commands):
        if number:
            sys.stdout.write("\x01\n")
        for old, new in _served.items():
            command = command.replace(old, new)  # noqa: PLW2901 - the same command at another port
        if is_run(command):
            code, output = _run(command)
            sys.stdout.write(output)
            if code != exit_code:
                raise RuntimeError(f"{command}: exit code {code}\n{output}")
        elif command.startswith(("pip install", "uv pip install")):
            check_extras(command)


def is_run(command: str) -> bool:
    """Return whether a test runs a command."""
    return not command.startswith((*(f"{name} " for name in NOT_RUN), "pip ", "uv "))


def check_extras(command: str) -> None:
    """Raise ValueError if `pip install` names an extra that does not exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for names in re.findall(r"resift\[([\w,-]+)\]", command):
        unknown = set(names.split(",")) - set(project["optional-dependencies"])
        if unknown:
            raise ValueError(f"{command}: no extra {', '.join(sorted(unknown))}")


def _command(text: str, start: int, end: int) -> Command:
    """Return a command in one line; a comment at its end may name the exit code."""
    line, _, comment = text.replace("\\\n", " ").strip().partition("  #")
    named = re.search(r"exit code (\d+)", comment)
    return Command(line.strip(), start, end, int(named[1]) if named else 0)


def _run(command: str) -> tuple[int, str]:
    sys.stdout.flush()
    if command.startswith("resift serve"):
        _serve(command)
        return 0, ""
    if command.startswith("resift ") and not SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
        return _run_here(_expand(shlex.split(command)[1:]))
    folder = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(  # noqa: S602 - the project's own pages
        command,
        shell=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": folder},
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout


class _Screen(io.StringIO):
    """Output as in a terminal, so that commands print for people."""

    def isatty(self) -> bool:
        return True


def _run_here(arguments: list[str]) -> tuple[int, str]:
    from resift.cli.main import main

    output, errors = _Screen(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    return int(code or 0), errors.getvalue() + output.getvalue()


def _expand(arguments: list[str]) -> list[str]:
    """Return arguments with file patterns replaced by the files, as a shell does."""
    expanded: list[str] = []
    for argument in arguments:
        expanded += sorted(glob.glob(argument)) or [argument] if "*" in argument else [argument]
    return expanded


def _serve(command: str) -> None:
    """Start a server on a free port of this machine; it ends with the page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    asked = re.search(r"--port (\d+)", command)
    arguments = shlex.split(re.sub(r" --(?:port|host) \S+|\s*&$", "", command))[1:]
    process = subprocess.Popen(  # noqa: S603 - the project's own pages
        [sys.executable, "-m", "resift.cli.main", *arguments, "--port", port],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop, process)
    for host in ("localhost", "127.0.0.1"):
        _served[f"{host}:{asked[1] if asked else PORT}"] = f"127.0.0.1:{port}"
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"{command}: ended with code {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{command}: did not listen within a minute")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
        return
    process.kill()
