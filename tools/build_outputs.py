"""Writes what the code of a page prints into the page: `python -m tools.build_outputs docs/quickstart.md …`.

A `text` block that directly follows a `python` block is that block's output. Tests run every page and compare
(numbers apart: scores may differ in the last digits between kinds of processors, and times always do).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "\x01"
NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")


def program(text: str) -> str:
    """Return the page's program, each block at its own line, so that errors name the right one."""
    code = ""
    for number, block in enumerate(_python(text)):
        fence = text[: block.start()].count("\n")
        code += "\n" * (fence - code.count("\n"))
        # In the place of the fence: says where in the output this block begins. Processes that a page starts
        # import it again, and what they print would be taken for the page's own.
        code += f"if __name__ == '__main__': print({f'{MARK}{number}{MARK}'!r})\n{block[2]}"
    return code


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's program in that folder, with warnings as errors."""
    # Not the page's bare name: haystack.py would be imported instead of the package.
    name = page.stem.replace("-", "_")
    script = folder / f"page_{name}.py"
    script.write_text(program(page.read_text(encoding="utf-8")), encoding="utf-8")
    return subprocess.run(  # noqa: S603 - the project's own pages
        [sys.executable, "-W", "error", script.name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # Some pages use the fake providers of tests/.
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    )


def printed(stdout: str) -> list[str]:
    """Return the output of each block."""
    return [part.strip("\n") for part in re.split(rf"{MARK}\d+{MARK}\n", stdout)[1:]]


def promised(text: str) -> dict[int, re.Match[str]]:
    """Return the text blocks that stand for an output, by the number of their python block."""
    fences = list(FENCE.finditer(text))
    numbers = {block.start(): number for number, block in enumerate(_python(text))}
    return {
        numbers[code.start()]: shown
        for code, shown in pairwise(fences)
        if (code[1], shown[1]) == ("python", "text") and not text[code.end() : shown.start()].strip()
    }


def alike(one: str, other: str) -> bool:
    """Say whether two outputs are the same apart from numbers."""
    return NUMBER.sub("#", one.strip()) == NUMBER.sub("#", other.strip())


def refilled(text: str, outputs: list[str]) -> str:
    """Return the page with its outputs as they were printed."""
    for number, shown in sorted(promised(text).items(), reverse=True):
        text = text[: shown.start(2)] + outputs[number] + "\n" + text[shown.end(2) :]
    return text


def _python(text: str) -> list[re.Match[str]]:
    return [block for block in FENCE.finditer(text) if block[1] == "python"]


def main() -> int:
    """Run the pages named and write their outputs into them."""
    for page in map(Path, sys.argv[1:]):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            answer = run(page, Path(folder))
        if answer.returncode:
            sys.stderr.write(f"{page}\n{answer.stderr}")
            return 1
        page.write_text(refilled(text, printed(answer.stdout)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
