"""`python -m tests.server.stub_server …`: the server of `resift serve` with a scorer that needs no model.

A document scores the number of the query's words in it. "wait 0.5" takes half a second, "fail" raises, and
"cost 0.001" makes each pair of the request cost a millisecond of waiting, two requests at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import numpy as np

from resift.cli import serve
from resift.cli.arguments import COMMANDS, add_options
from resift.server import serve_app
from resift.server.running import bind_socket, run_worker
from resift.types import ScorerInfo, Scores

_two = asyncio.Semaphore(2)


class StubScorer:
    name = "stub"
    info = ScorerInfo(name="stub")

    async def score(self, query, hits, *, deadline):
        values = []
        # At once, as the engine works beside the loop: by the pair, each would wait for a turn of a busy one.
        if cost_s := sum(float(hit.text.split()[1]) for hit in hits if hit.text.startswith("cost ")):
            async with _two:
                await asyncio.sleep(cost_s)
        # Found as parts of the text, since splitting it would cost more than the server's own work.
        words = [f" {word} " for word in query.split()]
        for hit in hits:
            if deadline.expired:
                values.append(None)
                continue
            await self._effects(hit.text)
            text = f" {hit.text} ".replace("\n", " ")
            values.append(float(sum(word in text for word in words)))
        late = values.count(None)
        reason = f"deadline: {len(values) - late} of {len(values)} hits scored" if late else None
        return Scores(values, self.name, degraded=late > 0, reason=reason)

    async def _effects(self, text):
        if text.startswith("wait "):
            await asyncio.sleep(float(text.split()[1]))
        elif text.startswith("fail"):
            raise RuntimeError(f"secret {text}")


class StubEmbedder:
    """Unit vectors from the letters of a text."""

    model_name = "stub-embedder"

    async def embed(self, texts, *, kind):
        rows = [[1.0 + text.count(letter) for letter in "aeiorstw"] for text in texts]
        vectors = np.array(rows or np.zeros((0, 8)), dtype="float32")
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def made(options):
    embedder = None if options.embedder is None else StubEmbedder()
    return serve_app(options, scorer=StubScorer(), embedder=embedder)


def main() -> int:
    parser = argparse.ArgumentParser()
    add_options(parser, COMMANDS["serve"])
    args = parser.parse_args()
    options, listening = serve.server_options(args), serve.listening_options(args)
    listener = bind_socket(listening)
    sys.stderr.write(f"Resift is at http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stderr.flush()
    return run_worker(options, listening, listener, make_app=made)


if __name__ == "__main__":
    sys.exit(main())
