"""Malformed requests of every kind get a 4xx answer, and the server stays up.

`python -m tests.hardening server` sends thousands, then overloads and drains the server.
"""

from __future__ import annotations

import pytest

from tests.hardening.bad_requests import storm


def test_bad_requests_do_no_harm(stub):
    """No 5xx, no hang, no traceback, and a good request is still answered."""
    found = storm(stub.port, 150)
    assert found["failures"] == []
    assert not any(status.startswith("5") or status == "hang" for status in found["statuses"])
    assert stub.process.poll() is None
    assert not any("Traceback" in line for line in stub.lines)
    assert stub.post("/v2/rerank", {"model": "m", "query": "a", "documents": ["a"]}).status == 200


@pytest.mark.parametrize("depth", [900, 1500, 20_000])
def test_deep_nesting_is_a_mistake_of_the_client(stub, depth):
    """Parsers of newer Python versions accept deeper nesting than the rest of the server can handle."""
    for nested in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        answer = stub.ask("POST", "/v2/rerank", b'{"model":"m","query":"q","documents":' + nested + b"}")
        assert answer.status == 400, answer.body
