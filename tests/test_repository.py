"""Workflows and hooks agree with the README, the constraints and the code; no file names a build machine."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.check import FRAMEWORKS, SLOW_FILES
from tests.test_supply import CONSTRAINTS, pinned, pyproject

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONFIGURATION = [*WORKFLOWS, *sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# Package indexes, and folders of one machine. The strings are split so that this file passes its own test.
HOSTS = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com", "crates" + ".io"]
FOLDERS = [
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/t" + "mp/",
    "/us" + "ers/",
    "/opt/py" + "pi",
    "/opt/wh" + "eels",
    "c:\\us" + "ers",
]
FORBIDDEN = re.compile("|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.*}}]){re.escape(one)}" for one in FOLDERS)]))


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(path: Path) -> list[str]:
    """Return the shell commands of a workflow."""
    return [step["run"] for job in load(path)["jobs"].values() for step in job["steps"] if "run" in step]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("path", CONFIGURATION, ids=lambda path: path.name)
def test_configuration_files_are_valid_yaml(path):
    assert isinstance(load(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_with_read_access_on_pinned_actions(path):
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(re.search(r"@v\d+$", step["uses"]) for step in steps if "uses" in step)


def test_pull_requests_run_the_readmes_test_command_on_every_supported_python():
    jobs = load(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = [step["run"] for step in jobs["linux"]["steps"] if "tests.check" in step.get("run", "")]
    assert f"$ {command}\n" in readme
    for job in ("linux", "macos-and-windows"):
        assert jobs[job]["strategy"]["matrix"]["python"] == PYTHONS


def test_every_python_in_the_classifiers_is_tested_on_pull_requests():
    prefix = "Programming Language :: Python :: 3."
    classifiers = pyproject()["project"]["classifiers"]
    assert {one.split(" :: ")[-1] for one in classifiers if one.startswith(prefix)} <= set(PYTHONS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_modules_and_test_paths_in_workflows_exist(path):
    for command in commands(path):
        for module in re.findall(r"python3? -m ([\w.]+)", command):
            assert importlib.util.find_spec(module), f"no module {module}"
        for file in re.findall(r"(?:tests|requirements|tools)/[\w./-]+", command):
            assert (ROOT / file).exists(), f"no file {file}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_packages_that_workflows_install_with_constraints_are_pinned(path):
    constraints = pinned(CONSTRAINTS)
    for command in commands(path):
        for install in re.findall(r"pip install ([^&|]*-c requirements/constraints\.txt[^&|]*)", command):
            names = [word for word in shlex.split(install) if re.fullmatch(r"[a-z][\w-]+", word)]
            assert all(name in constraints for name in names), install


def test_pre_commit_uses_the_constrained_versions():
    constraints = pinned(CONSTRAINTS)
    hooks = [hook for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    wanted = [Requirement(one) for hook in hooks for one in hook.get("additional_dependencies", [])]
    assert {one.name for one in wanted} == {"ruff"}
    for requirement in wanted:
        assert [requirement.specifier] == [one.specifier for one in constraints[requirement.name]]


def test_no_tracked_file_names_a_package_index_or_a_folder_of_a_machine():
    hits = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore").lower()
        if not any(one in text for one in (*HOSTS, *FOLDERS)):  # many times faster than the pattern
            continue
        hits += [f"{path.relative_to(ROOT)}: {match[0]}" for match in FORBIDDEN.finditer(text)]
    assert hits == []


def test_fast_checks_leave_out_only_files_that_exist():
    paths = [path for group in SLOW_FILES.values() for path in group.split()] + [path[6:] for path in FRAMEWORKS]
    assert [path for path in paths if not (ROOT / "tests" / path).exists()] == []
