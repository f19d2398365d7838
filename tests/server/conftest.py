"""Servers that several tests share."""

from __future__ import annotations

import pytest

from tests.server.process import start


@pytest.fixture(scope="session")
def stub():
    """A server whose scorer counts words, which takes any model name and has no key."""
    server = start("--any-model", "--embedder", "none")
    yield server
    assert server.stop() == 0
