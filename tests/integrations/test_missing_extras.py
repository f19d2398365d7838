"""Adapters without their framework: one error with the command that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules[sys.argv[1]] = None
try:
    __import__(f"resift.integrations.{sys.argv[2]}")
except ImportError as exc:
    print(type(exc).__name__, exc)
"""


@pytest.mark.parametrize(
    ("package", "adapter", "extra"),
    [
        ("langchain_core", "langchain", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
        ("mcp", "mcp", "mcp"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(package, adapter, extra):
    done = subprocess.run([sys.executable, "-c", PROGRAM, package, adapter], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError")
    assert f"[{extra}]" in done.stdout
