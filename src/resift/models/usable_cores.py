"""How many cores this process may use: its affinity, and the quota of its container (cgroups 1 and 2)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath


def usable_cores(root: Path = Path("/")) -> int:
    """Return the cores that this process may use, at least 1; a part of a core counts as one."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yield how many cores each group of this process allows, the outer groups included."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = PurePosixPath("/" + path.lstrip("/"))
        for group in (own, *own.parents):
            inside = str(group).lstrip("/")
            if number == "0":
                yield from _quota(*_text(root / "sys/fs/cgroup" / inside / "cpu.max").split()[:2])
            elif "cpu" in controllers.split(","):
                folder = root / "sys/fs/cgroup" / controllers / inside
                yield from _quota(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _quota(quota: str = "", period: str = "") -> Iterator[float]:
    """Yield quota / period; nothing where there is no limit ("max", or -1)."""
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return
    if cores > 0:
        yield cores


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
