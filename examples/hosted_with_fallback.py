"""A hosted reranker with a local fallback.

With VOYAGE_API_KEY set, the example calls Voyage. Otherwise it starts a small fake of Voyage on loopback that
answers the first request and fails afterward.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from resift.deadline import Deadline
from resift.rerankers.hosted import HostedReranker, hosted_reranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import Tiered
from resift.types import Hit

QUERY = "what governs subatomic particles?"
HITS = [
    Hit("newton", "Newton's laws govern the motion of planets."),
    Hit("quantum", "Quantum mechanics governs subatomic particles."),
    Hit("soil", "Soil particles feed the plants."),
]


class FakeVoyage(BaseHTTPRequestHandler):
    """Scores documents by shared words; fails after the first request."""

    requests = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        query = set(body["query"].rstrip("?").split())
        rows = [
            {"index": i, "relevance_score": len(query & set(text.rstrip(".").split())) / len(query)}
            for i, text in enumerate(body["documents"])
        ]
        FakeVoyage.requests += 1
        self.send_response(200 if FakeVoyage.requests == 1 else 500)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"data": rows}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keep the output of the example short."""


async def rerank(tiers: Tiered) -> None:
    ranking = await rescore(tiers, QUERY, HITS, k=2, deadline=Deadline.after(3.0))
    print(ranking.ids, "by", ranking.tier, f"(degraded: {ranking.reason})" if ranking.degraded else "")


async def main() -> None:
    voyage = hosted_reranker("voyage")
    if voyage is not None:
        await rerank(Tiered(voyage, SemanticBM25Reranker()))
        return
    with HTTPServer(("127.0.0.1", 0), FakeVoyage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        fake = HostedReranker("voyage", base_url=address, api_key="any", allow_loopback=True)
        tiers = Tiered(fake, SemanticBM25Reranker())
        await rerank(tiers)
        await rerank(tiers)
        await tiers.aclose()
        server.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
