"""As many workers as the process may use: affinity, and what its container allows."""

from __future__ import annotations

import os

import pytest

from resift.models import engine as module
from resift.models.engine import usable_cores


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def system(root, groups: str, **files: str):
    """A root folder with the groups of this process and the limits of each."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for path, text in files.items():
        file = root / "sys/fs/cgroup" / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_without_groups_the_affinity_counts(tmp_path, eight_cores):
    assert usable_cores(tmp_path) == 8


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("max 100000", 8),
        ("1600000 100000", 8),
        ("x", 8),
    ],
)
def test_a_group_of_version_2_limits(tmp_path, eight_cores, limit, cores):
    assert usable_cores(system(tmp_path, "0::/app\n", app__cpu_dot_max=limit)) == cores


def test_an_outer_group_limits_too(tmp_path, eight_cores):
    root = system(tmp_path, "0::/a/b\n", a__cpu_dot_max="300000 100000", a__b__cpu_dot_max="max 100000")
    assert usable_cores(root) == 3


def test_a_group_of_version_1_limits(tmp_path, eight_cores):
    limits = {"cpu,cpuacct__app__cpu_dot_cfs_quota_us": "400000", "cpu,cpuacct__app__cpu_dot_cfs_period_us": "100000"}
    assert usable_cores(system(tmp_path, "4:cpu,cpuacct:/app\n1:name=systemd:/x\n", **limits)) == 4


def test_this_process_has_a_core():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
