"""What holds for every test: no network but loopback, the same random examples everywhere."""

from __future__ import annotations

import contextlib
import gc
import importlib
import ipaddress
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_COMMON = settings(
    deadline=None,  # two busy cores: time says nothing here
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", _COMMON, max_examples=25, derandomize=True)
settings.register_profile("thorough", _COMMON, max_examples=500, derandomize=False)
settings.load_profile("quick")  # `--hypothesis-profile=thorough` replaces it

# One thread per library: more of them spin while they wait, and the workers share the cores anyway.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
    os.environ.setdefault(_name, "false" if _name == "TOKENIZERS_PARALLELISM" else "1")

# A suite that a shell started in the background inherits that Ctrl-C is ignored, and so would what it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_connect = socket.socket.connect

# Thousands of tests and hundreds of modules stay alive. By default the garbage collector goes through all of
# them again and again, for a fifth of the suite's CPU time.
gc.set_threshold(50_000, 20, 20)


def pytest_collection(session: pytest.Session) -> None:
    """Share the compilation of test files between the workers: each compiles its part before it collects."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker is None or sys.dont_write_bytecode:
        return
    folder = Path(__file__).parent
    if [Path(argument).resolve() for argument in session.config.args] != [folder]:
        return
    ignored = [Path(path).resolve() for path in session.config.getoption("ignore") or ()]
    for path in sorted(folder.rglob("test_*.py"))[int(worker.removeprefix("gw")) :: workers]:
        if not any(path.is_relative_to(other) for other in ignored):
            # A file that cannot be imported is reported when it is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests, so that `-m property` selects them."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collection from here on."""
    gc.collect()
    gc.freeze()


def _loopback_only(self: socket.socket, address):
    if isinstance(address, tuple) and not _is_loopback(address[0]):
        raise OSError(f"tests may not reach {address[0]}")
    return _connect(self, address)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="session")
def _no_network():
    """Refuse every connection that leaves this machine."""
    socket.socket.connect = _loopback_only
    yield
    socket.socket.connect = _connect


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of test collections; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
    if not folder.is_dir():
        pytest.skip("no test collections: set RESIFT_DATA")
    return folder
