"""Write what the code of a page prints into the page: `python -m tools.build_outputs docs/quickstart.md …`.

Two kinds of blocks run, from top to bottom, in one empty folder:

- `python`: a `text` block that directly follows is its output.
- `console`: a line that starts with `$ ` is a command, and the lines below it are its output. Commands
  without lines below may print anything. A line `…` stands for any lines. A comment `  # exit code 1` names
  the exit code of a command that fails. `tools.console_blocks` runs the commands.

Tests run every page and compare the outputs, apart from numbers: scores may differ in the last digits between
processors, and times always do. A block inside an HTML comment runs, too, and readers do not see it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tools.console_blocks import is_run, split_commands

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "\x01"
NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?|[█▏▎▍▌▋▊▉]+")
SPACES = re.compile(r"(?<=\S) {2,}|[─-]{3,}")
ANY_LINES = "…"

# Some pages use the fake providers of tests/.
ENVIRONMENT = {"PYTHONUTF8": "1", "COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
"""Variables of every page; RESIFT_HOME is its own folder, so that no earlier evaluation is found."""


def program(text: str) -> str:
    """Return the page's program, each block at its own line, so that errors name the right one."""
    code = ""
    for number, block in enumerate(_blocks(text)):
        fence = text[: block.start()].count("\n")
        code += "\n" * (fence - code.count("\n"))
        # The fence's line prints where in the output this block begins. Processes that a page starts
        # import it again, and what they print would be taken for the page's own.
        code += f"if __name__ == '__main__': print({f'{MARK}{number}{MARK}'!r})"
        if block[1] == "python":
            code += f"\n{block[2]}"
        else:
            commands = [(command.text, command.exit_code) for command in split_commands(block[2])]
            code += f"; __import__('tools.console_blocks', fromlist=['x']).run_commands({commands!r})\n"
    return code


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's program in that folder, with warnings as errors."""
    # Not the page's bare name: haystack.py would be imported instead of the package.
    name = re.sub(r"\W", "_", page.stem)
    script = folder / f"page_{name}.py"
    script.write_text(program(page.read_text(encoding="utf-8")), encoding="utf-8")
    return subprocess.run(  # noqa: S603 - the project's own pages
        [sys.executable, "-W", "error", script.name],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=180,
        env={**os.environ, **ENVIRONMENT, "RESIFT_HOME": str(folder / ".resift")},
    )


def printed(stdout: str) -> list[str]:
    """Return the output of each block; in a console block a mark divides the commands."""
    return [part.strip("\n") for part in re.split(rf"{MARK}\d+{MARK}\n", stdout)[1:]]


def differences(text: str, outputs: list[str]) -> list[str]:
    """Return the outputs that are not the ones on the page."""
    return [output for shown, output in _promises(text, outputs) if not alike(output, text[slice(*shown)])]


def promised(text: str) -> dict[int, re.Match[str]]:
    """Return the text blocks that show the output of a python block, by the number of that block."""
    fences = list(FENCE.finditer(text))
    numbers = {block.start(): number for number, block in enumerate(_blocks(text))}
    return {
        numbers[code.start()]: shown
        for code, shown in pairwise(fences)
        if (code[1], shown[1]) == ("python", "text") and not text[code.end() : shown.start()].strip()
    }


def alike(output: str, shown: str) -> bool:
    """Return whether two outputs are the same apart from numbers and the width of columns."""
    parts = [_comparable(part) for part in re.split(rf"(?m)^{ANY_LINES}$", shown)]
    pattern = "(?s:.*)".join(re.escape(part.strip()) + r"\s*" for part in parts)
    return re.fullmatch(r"\s*" + pattern, _comparable(output)) is not None


def refilled(text: str, outputs: list[str]) -> str:
    """Return the page with its outputs as they were printed."""
    for (start, end), output in sorted(_promises(text, outputs), reverse=True):
        if f"\n{ANY_LINES}\n" not in f"\n{text[start:end]}":
            text = text[:start] + output + "\n" + text[end:]
    return text


def _promises(text: str, outputs: list[str]) -> list[tuple[tuple[int, int], str]]:
    """Pair the places on the page that show an output with the output."""
    pairs = [((shown.start(2), shown.end(2)), outputs[number]) for number, shown in promised(text).items()]
    for number, block in enumerate(_blocks(text)):
        if block[1] == "console":
            found = outputs[number].split(MARK) if number < len(outputs) else []
            for command, output in zip(split_commands(block[2]), found, strict=False):
                if command.has_output and is_run(command.text):
                    start = block.start(2)
                    pairs.append(((start + command.start, start + command.end), output.strip("\n")))
    return pairs


def _comparable(text: str) -> str:
    return SPACES.sub(" ", NUMBER.sub("#", "\n".join(line.rstrip() for line in text.strip().splitlines())))


def _blocks(text: str) -> list[re.Match[str]]:
    return [block for block in FENCE.finditer(text) if block[1] in ("python", "console")]


def main() -> int:
    """Run the pages named and write their outputs into them."""
    for page in (Path(name).resolve() for name in sys.argv[1:]):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            answer = run(page, Path(folder))
        if answer.returncode:
            sys.stderr.write(f"{page}\n{answer.stderr}")
            return 1
        text = refilled(text, printed(answer.stdout))
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
