"""Any provider's rerank API as a scorer: split, ask in parallel, check, merge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from resift.deadline import Deadline
from resift.errors import ConfigError, DeadlineExceeded, InputError, ProviderError
from resift.rerankers.fusing import fuse_then_rescore
from resift.rerankers.hosted.answers import scores_in
from resift.rerankers.hosted.batches import split, worst
from resift.rerankers.hosted.client import at_least
from resift.rerankers.hosted.connecting import ConnectionOptions, connect
from resift.rerankers.hosted.dialects import Dialect, dialect_of
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments

_Outcome = list[float] | ProviderError | DeadlineExceeded


class HostedReranker:
    """Scores hits by a provider's rerank model: voyage, cohere, jina, mixedbread, tei, vllm, infinity.

    Raises ConfigError at once for an unknown provider, a missing key, an unsafe base URL or a number
    out of range. Pools over `batch_over` go in parallel requests of `batch_size`.
    """

    @check_arguments
    def __init__(
        self,
        provider: str,
        *,
        model: str | None = None,
        base_url: str | None = None,
        batch_over: int = 80,
        batch_size: int = 60,
        max_chars: int = 100_000,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        dialect = dialect_of(provider)
        at_least(provider, "batch_size", batch_size, least=1)
        at_least(provider, "batch_over", batch_over, least=0)
        at_least(provider, "max_chars", max_chars, least=1)
        self._dialect = dialect
        self._client = connect(
            provider,
            _address(dialect, base_url),
            connection,
            message_at=dialect.message_at,
            key_env=dialect.key_env,
            needs_key=dialect.needs_key,
        )
        self.name = provider
        self.model = model or dialect.default_model
        self.requires = (f"net.{provider}",)
        self._batch_over = batch_over
        self._batch_size = batch_size
        self._max_chars = max_chars

    def __repr__(self) -> str:
        return f"HostedReranker({self.name!r}, model={self.model!r}, base_url={self.base_url!r})"

    @property
    def base_url(self) -> str:
        """The address that is asked."""
        return self._client.endpoint.base_url

    @property
    def pointwise(self) -> bool:
        """Whether a score depends on its own text alone, so that requests can be merged and scores cached."""
        return self.model not in self._dialect.listwise_models

    @property
    def info(self) -> ScorerInfo:
        """Description of the provider's model; which languages it knows is the provider's business."""
        return ScorerInfo(name=self.name, score_scale=self._dialect.score_scale, pointwise=self.pointwise)

    @property
    def breaker_key(self) -> tuple[str, str, str, str]:
        """What fails together."""
        return self._client.breaker_key(self.model)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit; None for hits of a request that failed, and for empty texts.

        Raises the worst ProviderError when every request failed.
        """
        if not query.strip():
            raise InputError(f"The query is empty; {self.name} scores hits against a query.")
        query = query[: self._max_chars]
        # Empty texts are not sent: there is nothing to judge.
        asked = [at for at, hit in enumerate(hits) if hit.text.strip()]
        texts = [hits[at].text[: self._max_chars] for at in asked]
        batches, left_out = self._plan(query, texts)
        outcomes = await self._ask(query, [[texts[at] for at in batch] for batch in batches], deadline)
        failures = [outcome for outcome in outcomes if not isinstance(outcome, list)]
        if failures and len(failures) == len(batches):
            raise worst(failures)
        values: list[float | None] = [None] * len(hits)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, list):
                for at, value in zip(batch, outcome, strict=True):
                    values[asked[at]] = value
        reason = _reason(batches, failures, left_out)
        return Scores(
            values,
            self.name,
            degraded=reason is not None,
            reason=reason,
            note=self.model or "",
            scorer=self.info,
        )

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the k that the provider scores best."""
        deadline = Deadline.after(self._client.timeout_s)
        return await fuse_then_rescore(self, per_store, k=k, query=query, deadline=deadline)

    def _plan(self, query: str, texts: Sequence[str]) -> tuple[list[range], int]:
        """Return the requests to make, and how many texts have no place in them."""
        # Providers count the query once per document.
        each = _bytes(query)
        batches = split(
            [each + _bytes(text) for text in texts],
            batch_over=self._batch_over if self.pointwise else len(texts),
            batch_size=self._batch_size,
            max_documents=self._dialect.max_documents,
            max_bytes=self._dialect.max_bytes,
        )
        if self.pointwise or len(batches) < 2:
            return batches, 0
        # Scores of two listwise requests are two scales: what the first has no room for stays unscored.
        return batches[:1], len(texts) - len(batches[0])

    async def _ask(self, query: str, batches: list[list[str]], deadline: Deadline) -> list[_Outcome]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._batch(query, batch, deadline)) for batch in batches]
        return [task.result() for task in tasks]

    async def _batch(self, query: str, texts: list[str], deadline: Deadline) -> _Outcome:
        body = self._dialect.request(query, texts, model=self.model)
        try:
            answer = await self._client.post(self._dialect.path, body, deadline=deadline)
            return scores_in(answer, self._dialect, count=len(texts))
        # Returned, not raised: the other batches' scores still count.
        except (ProviderError, DeadlineExceeded) as exc:
            return exc


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _address(dialect: Dialect, base_url: str | None) -> str:
    address = base_url if base_url is not None else dialect.base_url
    if address is None:
        raise ConfigError(
            f"{dialect.name}: base_url is missing. It is your own server: "
            "pass its address, e.g. base_url='https://rerank.example.org'."
        )
    return address


def _reason(batches: Sequence[range], failures: Sequence[Exception], left_out: int) -> str | None:
    if failures:
        return f"{len(failures)} of {len(batches)} batches failed: {failures[0]}"
    if left_out:
        return f"{left_out} hits had no place in one request, and this model's scores compare only within one"
    return None
