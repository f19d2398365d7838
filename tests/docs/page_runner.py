"""Runs the programs of documentation pages in forks of one process that has the models and frameworks loaded.

A page in a process of its own spends most of its time on imports and on loading models. The parent process
does that once. Each page still gets its own process, folder, output and exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tools import build_outputs

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180
SLOW_IMPORTS = (
    "langchain_core.retrievers",
    "langchain_core.tools",
    "langgraph",
    "llama_index.core",
    "haystack",
    "pydantic_ai",
    "dspy",
    "pandas",
    "tests.providers",
)
"""Loaded by the parent process before the first page that mentions them."""


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's program in that folder, with warnings as errors."""
    script = folder / f"page_{re.sub(r'[^a-zA-Z0-9]', '_', page.stem)}.py"
    code = build_outputs.program(page.read_text(encoding="utf-8"))
    script.write_text(code, encoding="utf-8")
    parent = start_parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps({"script": str(script), "imports": slow_imports(code)}) + "\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    stdout, stderr = ((folder / name).read_text(encoding="utf-8") for name in ("stdout.txt", "stderr.txt"))
    return subprocess.CompletedProcess([str(script)], int(answer or 1), stdout, stderr)


def slow_imports(code: str) -> list[str]:
    """Return the large packages that the code mentions."""
    return [name for name in SLOW_IMPORTS if name.partition(".")[0] in code]


@cache
def start_parent() -> subprocess.Popen[str]:
    """Start the process that forks for each page; it ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.page_runner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **build_outputs.ENVIRONMENT},
    )
    atexit.register(process.communicate)
    return process


def serve_pages() -> None:
    """Fork for every line of stdin, and write the exit code of the fork to stdout."""
    import resift
    import resift.cli.main

    with tempfile.TemporaryDirectory() as folder, resift.Index(Path(folder, "warm.db")) as index:
        index.add(["load both models"])
        index.search("warm up")
    for line in sys.stdin:
        task = json.loads(line)
        for name in task["imports"]:
            try:
                import_module(name)
            except ImportError:
                continue  # the page says so itself
        gc.freeze()  # forks leave these objects alone, so their pages stay shared
        child = os.fork()
        if child == 0:
            run_script(Path(task["script"]))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run_script(script: Path) -> None:
    """Run the script as the main program of this fork, and end the fork."""
    signal.alarm(TIMEOUT_S)
    os.chdir(script.parent)
    os.environ["RESIFT_HOME"] = str(script.parent / ".resift")
    for number, name, mode in ((0, os.devnull, os.O_RDONLY), (1, "stdout.txt", 0), (2, "stderr.txt", 0)):
        opened = os.open(name, mode or os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
    sys.argv = [script.name]
    sys.path[0] = str(script.parent)
    warnings.simplefilter("error")
    # Pydantic AI looks for an event loop in a way that Python 3.13 warns about.
    warnings.filterwarnings("ignore", "There is no current event loop", DeprecationWarning)
    status = 0
    try:
        runpy.run_path(str(script), run_name="__main__")  # spawned processes import it by its path
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    finish_fork(status)


def finish_fork(status: int) -> NoReturn:
    """End this fork as the interpreter does, without freeing the memory of all modules one object at a time."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve_pages()
