"""A hosted reranker with a fallback on this machine.

With VOYAGE_API_KEY set, Voyage is asked. Else a server on loopback stands in, answers once and then fails.
"""

import asyncio

from resift.deadline import Deadline
from resift.rerankers.hosted import HostedReranker, hosted_reranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import Tiered
from resift.testing import ProviderServer
from resift.types import Hit

QUESTION = "what governs subatomic particles?"
HITS = [
    Hit("newton", "Newton's laws govern the motion of planets."),
    Hit("quantum", "Quantum mechanics governs subatomic particles."),
    Hit("soil", "Soil particles feed the plants."),
]


async def ask(tiers: Tiered) -> None:
    ranking = await rescore(tiers, QUESTION, HITS, k=2, deadline=Deadline.after(3.0))
    print(ranking.ids, "by", ranking.tier, f"(degraded: {ranking.reason})" if ranking.degraded else "")


async def main() -> None:
    voyage = hosted_reranker("voyage")
    if voyage is not None:
        await ask(Tiered(voyage, SemanticBM25Reranker()))
        return
    with ProviderServer() as server:
        address = server.base_url("voyage")
        stand_in = HostedReranker("voyage", base_url=address, api_key="any", allow_loopback=True)
        tiers = Tiered(stand_in, SemanticBM25Reranker())
        await ask(tiers)
        server.misbehave("500")
        await ask(tiers)
        await tiers.aclose()


if __name__ == "__main__":
    asyncio.run(main())
