"""Pinned requirements, and what SECURITY.md states about the model package."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from resift.models.registry import builtin_ids, builtin_spec

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
LOCKED = ROOT / "requirements" / "locked.txt"
TOOLS = ("hypothesis", "mypy", "pytest", "pytest-cov", "pytest-xdist", "ruff", "types-PyYAML")


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def entries(path: Path) -> list[str]:
    """Return the entries of a requirements file, one line each. Old pip reads it as ASCII."""
    lines = path.read_text(encoding="ascii").replace("\\\n", " ").splitlines()
    return [line for line in lines if not line.startswith("#")]


def pinned(path: Path) -> dict[str, list[Requirement]]:
    """Return the requirements of a file by package; a package may have one line per marker."""
    packages: dict[str, list[Requirement]] = {}
    for entry in entries(path):
        requirement = Requirement(entry.partition("--hash")[0].strip())
        packages.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return packages


@pytest.mark.parametrize("path", [CONSTRAINTS, LOCKED], ids=lambda path: path.name)
def test_pinned_requirements_have_one_exact_version_and_no_host(path):
    packages = pinned(path)
    assert len(packages) > 100
    for requirement in (one for several in packages.values() for one in several):
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert not specifier.version.endswith("*")
        assert requirement.url is None
        assert not requirement.extras  # pip refuses extras in constraints
    assert all(one.marker for several in packages.values() if len(several) > 1 for one in several)
    text = path.read_text(encoding="ascii")
    assert "://" not in text
    assert not re.search(r"--(index|extra|find|trusted)", text)


def test_every_locked_file_has_hashes_and_no_constraint_has():
    """A single hash in a constraints file makes pip demand one for everything, the checkout included."""
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries(LOCKED))
    assert "--hash" not in CONSTRAINTS.read_text(encoding="ascii")


def test_locked_versions_are_those_of_the_constraints():
    constraints = pinned(CONSTRAINTS)
    for name, several in pinned(LOCKED).items():
        assert {str(one.specifier) for one in several} <= {str(one.specifier) for one in constraints[name]}


def test_every_requirement_of_the_project_is_pinned_within_its_range():
    """After a change in pyproject.toml run: python -m tools.lock_requirements."""
    extras = pyproject()["project"]["optional-dependencies"]
    users = [
        *pyproject()["project"]["dependencies"],
        # PyTorch's packages depend on the device, so nobody installs them from one locked list.
        *(one for key in extras if key not in ("dev", "torch") for one in extras[key]),
    ]
    for path, wanted in ((LOCKED, users), (CONSTRAINTS, [*users, *extras["dev"]])):
        packages = pinned(path)
        for requirement in map(Requirement, wanted):
            if requirement.name != "resift":
                versions = packages.get(canonicalize_name(requirement.name))
                assert versions, f"{path.name} lacks {requirement.name}"
                for one in versions:
                    assert requirement.specifier.contains(str(one.specifier).removeprefix("=="))


def test_every_package_in_this_environment_is_constrained():
    """Follows the installed packages from `dev`, so that a transitive one without a pin is found."""
    constraints = pinned(CONSTRAINTS)
    todo = [Requirement(one) for one in pyproject()["project"]["optional-dependencies"]["dev"]]
    seen: set[tuple[str, str]] = set()
    missing = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        try:
            needs = [Requirement(one) for one in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:
            continue
        if name != "resift" and name not in constraints:
            missing.add(name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                todo += [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]
    assert missing == set()


def test_the_tools_that_decide_a_check_have_exact_versions():
    wanted = {one.name: one for one in map(Requirement, pyproject()["project"]["optional-dependencies"]["dev"])}
    for name in TOOLS:
        assert str(wanted[name].specifier).startswith("==")
    assert all("==" in one for one in pyproject()["build-system"]["requires"])


def test_security_says_what_the_carrier_brings():
    """The package that carries the models, its own requirements and its commands are named."""
    carrier = next(spec.package for name in builtin_ids() if (spec := builtin_spec(name)) and spec.package)
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    try:
        dist = metadata.distribution(carrier.name)
    except metadata.PackageNotFoundError:
        pytest.skip("the carrier is not installed")
    needed = [canonicalize_name(Requirement(one).name) for one in dist.requires or () if "extra ==" not in one]
    commands = [point.name for point in dist.entry_points if point.group == "console_scripts"]
    for word in (f"{carrier.name}=={carrier.version}", *needed, *commands):
        assert word in text, f"SECURITY.md does not name {word}"
