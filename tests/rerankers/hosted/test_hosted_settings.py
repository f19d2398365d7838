"""Bad configuration gets one clear error; keys come from argument, file or environment and never show."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from resift.errors import ConfigError
from resift.rerankers.hosted import (
    PROVIDERS,
    HostedReranker,
    get_production_cross_encoder_reranker,
    hosted_reranker,
    scorer,
)
from resift.rerankers.hosted.endpoints import check_endpoint, find_key

KEYED = [name for name, provider in PROVIDERS.items() if provider.needs_key]
OWN = [name for name, provider in PROVIDERS.items() if not provider.needs_key]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org", "not https"),
        ("http://127.0.0.1.example.org", "not https"),
        ("http://localhost.example.org:80", "not https"),
        ("http://10.0.0.1", "allow_private=True"),
        ("http://[::ffff:8.8.8.8]", "not https"),
        ("https://10.0.0.1", "allow_private=True"),
        ("https://192.168.1.1:8080/v1", "allow_private=True"),
        ("https://3232235777", "allow_private=True"),
        ("https://[fd12:3456::1]", "allow_private=True"),
        ("https://[::ffff:10.0.0.1]", "allow_private=True"),
        ("https://[64:ff9b::a00:1]", "allow_private=True"),
        ("https://100.64.0.1", "allow_private=True"),
        ("https://169.254.169.254/latest/meta-data", "metadata"),
        ("https://[fd00:ec2::254]", "metadata"),
        ("https://[::ffff:169.254.169.254]", "metadata"),
        ("https://0xa9fea9fe", "metadata"),
        ("https://metadata.google.internal.", "metadata"),
        ("https://[fe80::1%25eth0]", "metadata"),
        ("https://user:pass@example.org", "user name"),
        ("http://127.0.0.1@example.org", "user name"),
        ("https://example.org?x=1", "query"),
        ("https://example.org?", "query"),
        ("https://example.org#a", "query or a fragment"),
        ("https://exa mple.org", "characters"),
        ("https://example.org\\@evil.org", "user name"),
        ("https://example.org\\evil", "characters"),
        ("https://example.org:99999", "not a URL"),
        ("https://[::1", "not a URL"),
        ("ftp://example.org", "https://host"),
        ("file:///etc/passwd", "https://host"),
        ("//example.org", "https://host"),
        ("example.org", "https://host"),
        ("", "https://host"),
        (None, "https://host"),
    ],
)
def test_an_unsafe_base_url_is_refused(url, message):
    with pytest.raises(ConfigError, match=message) as caught:
        check_endpoint("voyage", url, allow_loopback=True)
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "http://localhost:1",
        "http://[::1]:1",
        "https://127.9.9.9",
        "http://0.0.0.0:1",
        "http://127.1:1",
        "http://2130706433:1",
        "http://[::ffff:127.0.0.1]:1",
        "http://localhost.:1",
        "http://[::]:1",
        "http://0x7f.1:1",
        "http://0177.0.0.1:1",
        "http://LOCALHOST:1",
        "http://a.localhost:1",
        "http://[::127.0.0.1]:1",
        "http://[64:ff9b::7f00:1]:1",
        "http://[2002:7f00:1::]:1",
        "http://0:1",
        "http://127.0.0.1.:1",
        "https://ip6-localhost:1",
        "https://ip6-loopback.:1",
        "https://localhost6.localdomain6:1",
    ],
)
def test_loopback_must_be_allowed_explicitly(url):
    with pytest.raises(ConfigError, match="allow_loopback=True"):
        check_endpoint("tei", url)
    assert check_endpoint("tei", url, allow_loopback=True).loopback


def test_a_private_network_must_be_allowed_and_needs_https():
    assert not check_endpoint("tei", "https://10.1.2.3", allow_private=True).loopback
    with pytest.raises(ConfigError, match="not https"):
        check_endpoint("tei", "http://10.1.2.3", allow_private=True)
    with pytest.raises(ConfigError, match="metadata"):
        check_endpoint("tei", "https://169.254.169.254", allow_private=True, allow_loopback=True)
    for public in (
        "https://8.8.8.8",
        "https://api.example.org",
        "https://[2606:4700::1111]",
        "https://127.example.org",
    ):
        assert check_endpoint("tei", public).base_url == public


def test_a_version_that_base_url_and_path_share_is_written_once():
    assert (
        check_endpoint("voyage", "https://api.voyageai.com/v1/").url("/v1/rerank")
        == "https://api.voyageai.com/v1/rerank"
    )
    assert check_endpoint("voyage", "https://gate.example.org/voyage").url("/v1/rerank").endswith("/voyage/v1/rerank")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": float("inf")}, "timeout_s"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_over": -5}, "batch_over is -5"),
        ({"max_chars": 0}, "max_chars is 0"),
        ({"api_key": ""}, "api_key is empty"),
        ({"api_key": "two words"}, "is not a key"),
        ({"api_key": "line\nbreak"}, "is not a key"),
        ({"api_key": "schlüssel"}, "is not a key"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        HostedReranker("voyage", **{"api_key": "k", **options})
    assert "break" not in str(caught.value)


def test_an_unknown_provider_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'voyage'"):
        HostedReranker("voyag", api_key="k")


@pytest.mark.parametrize("provider", OWN)
def test_self_hosted_servers_need_an_address_but_no_key(provider):
    with pytest.raises(ConfigError, match="base_url is missing"):
        HostedReranker(provider)
    assert HostedReranker(provider, base_url="https://rerank.example.org").name == provider


def test_a_key_file_is_stripped_and_must_have_a_key(tmp_path):
    good, empty, binary = tmp_path / "good", tmp_path / "empty", tmp_path / "binary"
    good.write_text("  abc123\n")
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe\x00key")
    assert find_key("voyage", api_key_file=good).reveal() == "abc123"
    for path, message in (
        (empty, "is empty"),
        (binary, "not UTF-8"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(ConfigError, match=message):
            hosted_reranker("voyage", api_key_file=path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_key_file_without_permission_is_a_clear_error(tmp_path):
    shut = tmp_path / "shut"
    shut.write_text("abc")
    shut.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        find_key("voyage", api_key_file=shut)


def test_the_argument_takes_precedence_over_the_file_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", " from-env ")
    path = tmp_path / "key"
    path.write_text("from-file")
    env = ("VOYAGE_API_KEY",)
    assert find_key("voyage", env=env).reveal() == "from-env"
    assert find_key("voyage", api_key_file=path, env=env).reveal() == "from-file"
    assert find_key("voyage", api_key="given", api_key_file=path, env=env).reveal() == "given"


@pytest.mark.parametrize("provider", KEYED)
def test_without_a_key_the_factory_returns_none_and_the_class_raises(provider, monkeypatch, caplog):
    assert hosted_reranker(provider) is None
    assert "Continuing without this reranker" in caplog.text
    with pytest.raises(ConfigError, match=PROVIDERS[provider].key_env[0]):
        HostedReranker(provider)
    for variable in PROVIDERS[provider].key_env:
        monkeypatch.setenv(variable, "k")
        assert hosted_reranker(provider).name == provider
        monkeypatch.setenv(variable, "")
        assert hosted_reranker(provider) is None


def test_a_custom_variable_replaces_that_of_the_provider(monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", "general")
    assert hosted_reranker("voyage", api_key_env="TEAM_KEY") is None
    with pytest.raises(ConfigError, match="Set TEAM_KEY"):
        HostedReranker("voyage", api_key_env="TEAM_KEY")
    monkeypatch.setenv("TEAM_KEY", "special")
    built = hosted_reranker("voyage", api_key_env="TEAM_KEY")
    assert built.breaker_key == HostedReranker("voyage", api_key=" special\n").breaker_key


def test_the_factory_returns_none_if_switched_off(monkeypatch):
    assert hosted_reranker("voyage", api_key="k", cross_encoder_reranking_enabled=False) is None
    monkeypatch.setenv("RESIFT_CROSS_ENCODER_RERANKING_ENABLED", "false")
    assert hosted_reranker("voyage", api_key="k") is None
    assert hosted_reranker("voyage", api_key="k", cross_encoder_reranking_enabled=True) is not None
    monkeypatch.setenv("RESIFT_CROSS_ENCODER_RERANKING_ENABLED", "perhaps")
    with pytest.raises(ConfigError, match="true or false"):
        hosted_reranker("voyage", api_key="k")


def test_two_keys_have_two_breakers_and_are_not_shown():
    one, two = (HostedReranker("voyage", api_key=key) for key in ("first-key", "second-key"))
    assert one.breaker_key != two.breaker_key
    assert one.breaker_key == HostedReranker("voyage", api_key="first-key").breaker_key
    assert "first-key" not in repr(one.breaker_key) + repr(one) + repr(vars(one))


@pytest.fixture
def no_production_reranker(monkeypatch):
    """Start without the process's reranker, and without it for the tests that follow."""
    monkeypatch.setattr(scorer, "_production", None)


def test_the_process_has_one_production_reranker(monkeypatch, no_production_reranker):
    """Nothing without a key; then the same object for every thread and every call."""
    assert get_production_cross_encoder_reranker() is None
    monkeypatch.setenv("VOYAGE_API_KEY", "a-key")
    barrier = threading.Barrier(8)

    def get(_: int) -> HostedReranker | None:
        barrier.wait()
        return get_production_cross_encoder_reranker()

    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(get, range(8)))
    [reranker] = made
    assert (reranker.name, reranker.model) == ("voyage", "rerank-2.5")
    assert get_production_cross_encoder_reranker() is reranker


def test_the_production_reranker_can_be_switched_off(monkeypatch, no_production_reranker):
    monkeypatch.setenv("VOYAGE_API_KEY", "a-key")
    assert get_production_cross_encoder_reranker(cross_encoder_reranking_enabled=False) is None
    monkeypatch.setenv("RESIFT_CROSS_ENCODER_RERANKING_ENABLED", "false")
    assert get_production_cross_encoder_reranker() is None
    monkeypatch.setenv("RESIFT_CROSS_ENCODER_RERANKING_ENABLED", "true")
    assert get_production_cross_encoder_reranker() is get_production_cross_encoder_reranker()
