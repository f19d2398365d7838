import pytest

from resift.rerankers.hosted import HostedReranker
from resift.types import Hit
from tests.providers import ProviderServer


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in (
        "VOYAGE_API_KEY",
        "COHERE_API_KEY",
        "CO_API_KEY",
        "JINA_API_KEY",
        "MXBAI_API_KEY",
        "TEI_API_KEY",
        "VLLM_API_KEY",
        "INFINITY_API_KEY",
        "RESIFT_CROSS_ENCODER_RERANKING_ENABLED",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with ProviderServer() as running:
        yield running


@pytest.fixture
def reranker(server):
    def build(provider="voyage", **options):
        options = {"api_key": "a-key", "base_url": server.base_url(provider), **options}
        return HostedReranker(provider, allow_loopback=True, **options)

    return build


@pytest.fixture
def pool():
    def build(count):
        return [Hit(f"d{at:03}", f"passage number{at} about {'quantum' if at % 3 else 'soil'}") for at in range(count)]

    return build
