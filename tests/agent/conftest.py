"""Packs that several tests read."""

from __future__ import annotations

import asyncio

import pytest

from tests.agent.small import WordEmbedder, small_pack


@pytest.fixture(scope="session")
def pack_file(tmp_path_factory):
    """The small pack."""
    return small_pack(tmp_path_factory.mktemp("pack"))


@pytest.fixture
def agent(pack_file):
    """An agent over the small pack, without models."""
    from resift.agent import KnowledgeGraphAgent

    with KnowledgeGraphAgent(pack_file, embedder=WordEmbedder()) as made:
        yield made


@pytest.fixture(scope="session")
def sample_file(tmp_path_factory):
    """The shipped sample as a pack; skipped where the models are not installed."""
    pytest.importorskip("tokenizers")
    from resift.agent import sample_pack

    return asyncio.run(sample_pack(tmp_path_factory.mktemp("sample")))
