"""Run the `console` blocks of a documentation page.

`resift` commands run in this process, which saves the time of an interpreter, also as parts of a pipe. Other
programs run in a shell. `resift serve` starts in a fork on a free port, and later commands reach it.
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
import signal
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

TESTED_ELSEWHERE = ("resift demo", "resift doctor")
"""Commands that take seconds and have tests of their own: tests/cli/test_demo.py and test_doctor.py."""

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
    if command in TESTED_ELSEWHERE:
        return False
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
    if _is_plain(command):
        return _run_here(_expand(shlex.split(command)[1:]))
    parts = re.split(r"""\s\|\s(?=(?:[^"']|"[^"]*"|'[^']*')*$)""", command)
    if len(parts) > 1 and any(_is_plain(part) for part in parts):
        return _run_pipe(parts)
    return _run_shell(command)


def _is_plain(command: str) -> bool:
    """Return whether this is a `resift` command without redirection, variables or other syntax of a shell."""
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
    return command.startswith("resift ") and not SHELL.search(unquoted)


def _run_pipe(parts: list[str]) -> tuple[int, str]:
    """Run the commands of a pipe one after the other; what they wrote to stderr comes first."""
    code, data, errors = 0, "", ""
    for part in parts:
        if _is_plain(part):
            code, data, error = _run_main(_expand(shlex.split(part)[1:]), io.StringIO(), data)
            errors += error
        else:
            code, data = _run_shell(part, data)
    return code, errors + data


def _run_shell(command: str, data: str | None = None) -> tuple[int, str]:
    folder = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(  # noqa: S602 - the project's own pages
        command,
        shell=True,
        text=True,
        input=data,
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
    code, output, errors = _run_main(arguments, _Screen())
    return code, errors + output


def _run_main(arguments: list[str], output: io.StringIO, data: str | None = None) -> tuple[int, str, str]:
    """Run a `resift` command with this text as its standard input."""
    from resift.cli.main import main

    errors, stdin = io.StringIO(), sys.stdin
    if data is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(data.encode()), encoding="utf-8")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        finally:
            sys.stdin = stdin
    return int(code or 0), output.getvalue(), errors.getvalue()


def _expand(arguments: list[str]) -> list[str]:
    """Return arguments with file patterns replaced by the files, as a shell does."""
    expanded: list[str] = []
    for argument in arguments:
        expanded += sorted(glob.glob(argument)) or [argument] if "*" in argument else [argument]
    return expanded


def _serve(command: str) -> None:
    """Start a server on a free port, with the models of this process; it ends with the page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    asked = re.search(r"--port (\d+)", command)
    arguments = shlex.split(re.sub(r" --(?:port|host) \S+|\s*&$", "", command))[1:]
    child = os.fork()
    if child == 0:
        from resift.cli.main import main

        silent = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(silent, number)
        try:
            os._exit(main([*arguments, "--port", port]))
        finally:
            os._exit(1)
    atexit.register(_stop, child)
    for host in ("localhost", "127.0.0.1"):
        _served[f"{host}:{asked[1] if asked else PORT}"] = f"127.0.0.1:{port}"
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            raise RuntimeError(f"{command}: ended with code {os.waitstatus_to_exitcode(status)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{command}: did not listen within a minute")


def _stop(child: int) -> None:
    """End a server that has nothing to save."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
