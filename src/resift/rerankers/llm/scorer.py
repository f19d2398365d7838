"""A chat model as a listwise reranker: it orders windows from the end of the list to its top.

The sliding window is that of Sun et al., "Is ChatGPT Good at Search?" (EMNLP 2023).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from resift.deadline import Deadline
from resift.errors import ConfigError, DeadlineExceeded, InputError, ProviderBadAnswer, ProviderError
from resift.rerankers.fusing import fuse_then_rescore
from resift.rerankers.hosted.chat import ChatClient
from resift.rerankers.hosted.client import at_least
from resift.rerankers.hosted.connecting import ConnectionOptions
from resift.rerankers.hosted.hosted_options import EndpointOptions
from resift.rerankers.llm.answer import read_order
from resift.rerankers.llm.prompt import ranking_messages
from resift.types import Hit, JsonMapping, ScorerInfo, Scores
from resift.validation import check_arguments, option


class LLMReranker:
    """Orders hits by asking any OpenAI-compatible chat endpoint, a window at a time.

    Scores are reciprocal final positions: they say an order, not how relevant a hit is, and they
    depend on the whole pool (`pointwise` is False). The best `depth` hits are judged.
    """

    pointwise = False
    # Reciprocal positions are neither probabilities nor logits.
    info = ScorerInfo(name="llm")

    @check_arguments
    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        window: int = 20,
        step: int = 10,
        depth: int = 100,
        max_query_chars: int = 2000,
        max_passage_chars: int = 1500,
        body: JsonMapping | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        at_least("llm", "window", window, least=2)
        at_least("llm", "step", step, least=1)
        at_least("llm", "depth", depth, least=1)
        at_least("llm", "max_query_chars", max_query_chars, least=1)
        at_least("llm", "max_passage_chars", max_passage_chars, least=1)
        if step >= window:
            raise ConfigError(
                f"llm: step is {step}; it must be below window ({window}), so that windows overlap."
            )
        self.name = "llm"
        self.requires = ("net.llm",)
        self._chat = ChatClient(
            base_url, model, max_tokens=64 + 8 * window, body=body, name="llm", **connection
        )
        self._window = window
        self._step = step
        self._depth = depth
        self._limits = {"max_query_chars": max_query_chars, "max_passage_chars": max_passage_chars}

    def __repr__(self) -> str:
        return (
            f"LLMReranker({self.breaker_key[1]!r}, {self.model!r}, window={self._window}, step={self._step})"
        )

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self._chat.model

    @property
    def breaker_key(self) -> tuple[str, str, str, str]:
        """What fails together."""
        return self._chat.breaker_key

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return 1/position for each hit in the order that the model gives.

        When time or the endpoint gives out between windows, the order so far counts and is marked as
        degraded; raises when not even one window was judged.
        """
        if not query.strip():
            raise InputError("The query is empty; llm orders hits against a query.")
        order = list(range(len(hits)))
        windows = starts(min(len(hits), self._depth), window=self._window, step=self._step)
        reason = None
        for done, start in enumerate(windows):
            inside = order[start : start + self._window]
            inside = inside[: max(0, self._depth - start)]
            try:
                judged = await self._judged(query, [hits[at].text for at in inside], deadline)
            except (ProviderError, DeadlineExceeded) as exc:
                if not done:
                    raise
                reason = f"{done} of {len(windows)} windows were judged: {exc}"
                break
            order[start : start + len(inside)] = [inside[position] for position in judged]
        values = [0.0] * len(hits)
        for place, at in enumerate(order, start=1):
            values[at] = 1.0 / place
        most = self._limits["max_query_chars"]
        note = f"{self.model}; query cut to its first {most} characters" if len(query) > most else self.model
        return Scores(
            values, self.name, degraded=reason is not None, reason=reason, note=note, scorer=self.info
        )

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the k that the model places first."""
        windows = starts(self._depth, window=self._window, step=self._step)
        deadline = Deadline.after(self._chat.timeout_s * max(1, len(windows)))
        return await fuse_then_rescore(self, per_store, k=k, query=query, deadline=deadline)

    async def _judged(self, query: str, texts: list[str], deadline: Deadline) -> tuple[int, ...]:
        messages = ranking_messages(query, texts, **self._limits)
        completion = await self._chat.complete(messages, deadline=deadline)
        order = read_order(completion.text, len(texts), finished=completion.finished)
        if order is None:
            raise ProviderBadAnswer(
                "llm answered without an order: no passage number can be read from it.", provider=self.name
            )
        return order.positions


def starts(count: int, *, window: int, step: int) -> list[int]:
    """Return where windows begin, last first: the tail is judged first and the best move up."""
    if count < 2:
        return []
    first = max(0, count - window)
    return [*range(first, 0, -step), 0]


@dataclass(frozen=True, kw_only=True)
class LLMOptions(EndpointOptions):
    """What a pipeline file can say of a chat model that reranks."""

    key_hosts: ClassVar[Mapping[str, str]] = {"OPENAI_API_KEY": "api.openai.com"}

    api_key_env: str | None = option(
        "Environment variable that holds the key. Unset means: skip this tier.",
        default=None,
        kind="variable",
        variables=("OPENAI_API_KEY", "LLM_API_KEY"),
    )
    base_url: str = option("An OpenAI-compatible endpoint.", kind="address")
    model: str = option("The chat model.")
    window: int = option("Hits per question.", default=20, min=2)
    step: int = option("How far the window moves.", default=10, min=1)
    timeout_s: float = option("Longest wait for one request, in seconds.", default=30.0, gt=0)


class LLMFactory:
    """What the entry point `llm` names."""

    Options = LLMOptions
    required = LLMReranker

    def __call__(self, *, api_key_env: str | None = None, **options: Any) -> LLMReranker | None:
        """Return an LLMReranker; None when `api_key_env` names a variable that is not set."""
        if api_key_env and not os.environ.get(api_key_env, "").strip():
            return None
        return LLMReranker(api_key_env=api_key_env, **options)


llm = LLMFactory()
