"""Real clients against a real server: each must get the order of `resift.rerank`.

The part `clients` of `python -m benchmarks.server`.

The environments are made once under benchmarks/.envs; some clients bring a lot with them. Versions are the
newest that the package index has, and an older one where applications pin it.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import resift
from benchmarks.harness import PEERS, peer_env
from tests.server.process import real

QUERY = "What governs subatomic particles?"
DOCUMENTS = [
    "Newton's laws describe motion.",
    "Quantum mechanics describes subatomic particles.",
    "Cooking pasta takes ten minutes.",
    "The standard model names the forces between particles.",
    "A harbour is where ships lie.",
]

CLIENTS: dict[str, tuple[str, list[str]]] = {
    "cohere": ("cohere_v2", ["cohere"]),
    "cohere-5": ("cohere_v1", ["cohere==5.13.0"]),
    "voyageai": ("voyageai", ["voyageai"]),
    "openai": ("openai", ["numpy", "openai"]),
    "litellm": ("litellm", ["litellm"]),
    "langchain-cohere": ("langchain_cohere", ["langchain-cohere"]),
    "langchain-openai": ("langchain_openai", ["langchain-openai"]),
    "llama-index-cohere": ("llama_index_cohere", ["llama-index-core", "llama-index-postprocessor-cohere-rerank"]),
    "llama-index-tei": ("llama_index_tei", ["llama-index-core", "llama-index-postprocessor-tei-rerank"]),
    "haystack-tei": ("haystack_tei", ["haystack-ai", "huggingface-api-haystack"]),
    "haystack-cohere": ("haystack_cohere", ["cohere-haystack"]),
}
"""Client -> function in peers/server_clients.py, and what its environment needs, the client itself last."""


def check(name: str, url: str, expected: list[int]) -> dict[str, object]:
    """Let one client ask, and say what it got."""
    function, packages = CLIENTS[name]
    try:
        python = peer_env(f"client-{name}", packages)
    except (subprocess.CalledProcessError, OSError) as exc:
        return {"ok": False, "why": f"could not be installed: {type(exc).__name__}"}
    asked = json.dumps([url, "secret", QUERY, DOCUMENTS])
    script = str(PEERS / "server_clients.py")
    done = subprocess.run(
        [str(python), script, function, asked], capture_output=True, text=True, timeout=300, check=False
    )
    version = _version(python, packages[-1].partition("==")[0])
    if done.returncode:
        return {"ok": False, "version": version, "why": done.stderr.strip().splitlines()[-1][:300]}
    order = json.loads(done.stdout.strip().splitlines()[-1])["order"]
    return {"ok": order is None or order == expected, "version": version, "order": order}


def _version(python, package: str) -> str:
    program = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def clients(quick: bool) -> dict[str, Any]:
    """Ask the server through every client, or in a quick run through the first."""
    expected = [int(id) for id in resift.rerank(QUERY, DOCUMENTS).ids]
    server = real("--any-model", env={"RESIFT_API_KEYS": "secret"})
    try:
        return {name: check(name, server.url, expected) for name in list(CLIENTS)[: 1 if quick else None]}
    finally:
        server.stop()
