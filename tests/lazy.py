"""Large packages that only a few tests need, imported when the first of them runs."""

from __future__ import annotations

from typing import Any

import pytest


class LazyModule:
    """A module imported at its first use: a worker that runs none of its tests never loads it.

    The test that uses it is skipped where the package is not installed.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for these while it collects tests
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)
