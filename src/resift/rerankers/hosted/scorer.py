"""Score hits with a provider's rerank API in parallel batches; also its options and factories."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack
from urllib.parse import urlsplit

from resift import errors
from resift._internal.environment import ALLOWED_VARIABLES, is_allowed_variable
from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.errors import ConfigError, DeadlineExceeded, InputError, ProviderError
from resift.events import emit
from resift.rerankers.hosted import cost as costs
from resift.rerankers.hosted.client import ConnectionOptions, MissingKeyError, ProviderClient, check_at_least
from resift.rerankers.hosted.cost import Usage
from resift.rerankers.hosted.endpoints import is_public_name, network_scope
from resift.rerankers.hosted.providers import Provider, find_provider, read_scores
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, JsonValue, ScorerInfo, Scores
from resift.validation import Options, check_arguments, option

log = logging.getLogger(__name__)

BatchResult = tuple[list[float], Usage] | ProviderError | DeadlineExceeded


class HostedReranker(FusesThenScores):
    """Scores hits with a provider's rerank model: voyage, cohere, jina, mixedbread, tei, vllm, infinity.

    Raises ConfigError for invalid options. Pools larger than `batch_over` are split into parallel requests of
    `batch_size`. A call that would exceed a cost limit raises CostLimitExceeded before anything is sent.
    """

    @check_arguments
    def __init__(
        self,
        provider: str,
        *,
        model: str | None = None,
        base_url: str | None = None,
        instruction: str | None = None,
        batch_over: int = 80,
        batch_size: int = 60,
        max_chars: int = 100_000,
        price_per_million_tokens: float | None = None,
        price_per_thousand_searches: float | None = None,
        max_usd_per_call: float | None = None,
        max_usd_per_minute: float | None = None,
        max_usd_per_day: float | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        row = find_provider(provider)
        check_at_least(provider, 1, batch_size=batch_size, max_chars=max_chars)
        check_at_least(provider, 0, batch_over=batch_over)
        address = base_url if base_url is not None else row.base_url
        if address is None:
            raise ConfigError(
                f"{provider}: base_url is missing. This provider runs on your own server: "
                "pass its address, e.g. base_url='https://rerank.example.org'."
            )
        self._provider = row
        self._client = ProviderClient(
            provider, address, connection, message_at=row.message_at, key_env=row.key_env, needs_key=row.needs_key
        )
        self.name = provider
        self.fuse_timeout_s = self._client.timeout_s
        self.model = model or row.default_model
        self.requires = (f"net.{provider}",)
        amounts = {
            "price_per_million_tokens": price_per_million_tokens,
            "price_per_thousand_searches": price_per_thousand_searches,
            "max_usd_per_call": max_usd_per_call,
            "max_usd_per_minute": max_usd_per_minute,
            "max_usd_per_day": max_usd_per_day,
        }
        check_at_least(provider, 0, **{name: value for name, value in amounts.items() if value is not None})
        self.price = costs.find_price(provider, self.model, price_per_million_tokens, price_per_thousand_searches)
        self.limits = costs.CostLimits(call=max_usd_per_call, minute=max_usd_per_minute, day=max_usd_per_day)
        if self.limits and self.price is None:
            raise ConfigError(
                f"{provider}: a cost limit is set, but the price of {self.model!r} is unknown. "
                "Set price_per_million_tokens or price_per_thousand_searches."
            )
        self._spending = costs.account_spending(self._client.breaker_key(None))
        self._batch_over = batch_over
        self._batch_size = batch_size
        self._max_chars = max_chars
        self.instruction = instruction
        if instruction and not self.info.supports_instruction:
            supported = ", ".join(sorted(row.instruction_models)) or "none"
            raise ConfigError(f"{provider}: {self.model} does not follow an instruction. Models that do: {supported}.")

    def __repr__(self) -> str:
        return f"HostedReranker({self.name!r}, model={self.model!r}, base_url={self.base_url!r})"

    @property
    def base_url(self) -> str:
        """Base URL of the service."""
        return self._client.endpoint.base_url

    @property
    def pointwise(self) -> bool:
        """Whether a score depends only on its own text, so that batches can be merged and scores cached."""
        return self.model not in self._provider.listwise_models

    @property
    def info(self) -> ScorerInfo:
        """Description of the provider's model; its languages are not known."""
        return ScorerInfo(
            name=self.name,
            score_scale=self._provider.score_scale,
            supports_instruction=self.model in self._provider.instruction_models,
            pointwise=self.pointwise,
        )

    @property
    def revision(self) -> str:
        """The instruction, on which scores depend in addition to the model."""
        return self.instruction or ""

    def with_instruction(self, instruction: str) -> Self:
        """Return a copy that uses an instruction, if the model follows one; both share connections and limits."""
        if not self.info.supports_instruction:
            return self
        scorer = copy.copy(self)
        scorer.instruction = instruction
        return scorer

    @property
    def breaker_key(self) -> tuple[str, str, str, str]:
        """Identity of the upstream: calls with the same key fail together."""
        return self._client.breaker_key(self.model)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return a score per hit, None for empty texts and failed requests; raises the worst error if all failed."""
        if not query.strip():
            raise InputError(f"The query is empty; {self.name} scores hits against a query.")
        query = (f"{self.instruction}\nQuery: {query}" if self.instruction else query)[: self._max_chars]
        # Empty texts are not sent, because there is nothing to score.
        scorable = [i for i, hit in enumerate(hits) if hit.text.strip()]
        texts = [hits[i].text[: self._max_chars] for i in scorable]
        batches = self._plan_batches(query, texts)
        expected = [costs.estimate_usage(query, [texts[i] for i in batch]) for batch in batches]
        reserved = 0.0
        if self.price is not None:
            reserved = sum(map(self.price.cost, expected))
            self._spending.reserve(self.name, reserved, self.limits, deadline.clock())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._score_batch(query, [texts[i] for i in batch], usage, deadline))
                for batch, usage in zip(batches, expected, strict=True)
            ]
        results = [task.result() for task in tasks]
        usage = self._settle(results, expected, reserved, deadline)
        failures = [result for result in results if not isinstance(result, tuple)]
        if failures and len(failures) == len(batches):
            raise worst_failure(failures)
        values: list[float | None] = [None] * len(hits)
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, tuple):
                for i, value in zip(batch, result[0], strict=True):
                    values[scorable[i]] = value
        reason = None
        unsent = len(texts) - sum(map(len, batches))
        if failures:
            reason = f"{len(failures)} of {len(batches)} batches failed: {failures[0]}"
        elif unsent:
            reason = f"{unsent} hits did not fit in one request, and scores from two requests are not comparable"
        return Scores(
            values,
            self.name,
            degraded=reason is not None,
            reason=reason,
            note=self.model or "",
            scorer=self.info,
            tokens=int(usage.get("tokens", 0)),
            usage=usage,
        )

    def _settle(
        self, results: Sequence[BatchResult], expected: Sequence[Usage], reserved: float, deadline: Deadline
    ) -> dict[str, float]:
        """Replace the expected cost with the reported cost, emit an event, and return usage and cost.

        Failed requests are not billed. Requests that timed out may have been, so their expected cost is kept.
        """
        reported = [result[1] for result in results if isinstance(result, tuple)]
        timed_out = [
            usage for result, usage in zip(results, expected, strict=True) if isinstance(result, errors.ProviderTimeout)
        ]
        cost = None
        if self.price is not None:
            cost = sum(map(self.price.cost, reported))
            self._spending.correct(cost + sum(map(self.price.cost, timed_out)) - reserved, deadline.clock())
        if not reported:
            return {}
        event = costs.ProviderBilled(
            provider=self.name,
            model=self.model or "",
            tokens=sum(each.tokens for each in reported),
            search_units=sum(each.search_units for each in reported),
            cost_usd=cost,
            estimated=any(each.estimated for each in reported),
            price_checked=self.price is not None and self.price.checked,
        )
        emit(None, event)
        usage = {"tokens": float(event.tokens), "search_units": float(event.search_units), "cost_usd": cost}
        return {name: value for name, value in usage.items() if value}

    def _plan_batches(self, query: str, texts: Sequence[str]) -> list[range]:
        # Providers count the query's tokens once per document.
        query_bytes = len(query.encode("utf-8", "replace"))
        batches = split_batches(
            [query_bytes + len(text.encode("utf-8", "replace")) for text in texts],
            batch_over=self._batch_over if self.pointwise else len(texts),
            batch_size=self._batch_size,
            max_documents=self._provider.max_documents,
            max_bytes=self._provider.max_bytes,
        )
        # Listwise scores from two requests have different scales, so only the first is sent and the rest stay unscored.
        return batches if self.pointwise else batches[:1]

    async def _score_batch(self, query: str, texts: list[str], expected: Usage, deadline: Deadline) -> BatchResult:
        body = self._provider.request(query, texts, model=self.model)
        try:
            response = await self._client.post(self._provider.path, body, deadline=deadline)
            return read_scores(response, self._provider, count=len(texts)), costs.read_usage(response, expected)
        # Returned instead of raised, so that the scores of the other batches are kept.
        except (ProviderError, DeadlineExceeded) as exc:
            return exc


def split_batches(
    sizes: Sequence[int], *, batch_over: int, batch_size: int, max_documents: int, max_bytes: int
) -> list[range]:
    """Split documents into consecutive ranges within the limits; at most `batch_over` stay together if possible."""
    max_count = min(len(sizes) if len(sizes) <= batch_over else batch_size, max_documents)
    batches: list[range] = []
    start = batch_bytes = 0
    for i, size in enumerate(sizes):
        if i > start and (i - start >= max_count or batch_bytes + size > max_bytes):
            batches.append(range(start, i))
            start, batch_bytes = i, 0
        batch_bytes += size
    return [*batches, range(start, len(sizes))] if sizes else []


def worst_failure(failures: Sequence[ProviderError | DeadlineExceeded]) -> ProviderError | DeadlineExceeded:
    """Return the failure to report: the one that opens the breaker longest; ties go to the first."""
    # A malformed or unsent request is no evidence about the provider's health.
    severity: dict[type, int] = {errors.ProviderAuthError: 4, errors.ProviderRateLimited: 3, errors.ProviderRejected: 1}
    severity[DeadlineExceeded] = 0
    return max(failures, key=lambda error: (severity.get(type(error), 2), getattr(error, "retry_after_s", None) or 0.0))


# --- Options in pipeline files ------------------------------------------------------------------------------

_KEY_HELP = "Environment variable with the key; default: the provider's own. If it is unset, this tier is skipped."


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(Options):
    """Key and connection options of a service; subclasses add `base_url`."""

    key_hosts: ClassVar[Mapping[str, str]] = {}
    """Environment variable -> the only host that its key may be sent to."""

    key_variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables that are read if the file does not name one."""

    api_key_env: str | None = option(_KEY_HELP, default=None, kind="variable")
    api_key_file: str | None = option(
        "File that contains the key, relative to the pipeline file.", default=None, kind="key file", must_exist=True
    )
    allow_loopback: bool = option("Allow plain http to this machine.", default=False)
    allow_private: bool = option("Allow an address in a private network.", default=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if the address would receive the key of another host."""
        address = getattr(self, "base_url", None)
        if address is None or self.api_key_file is not None:
            return
        host = urlsplit(address).hostname or ""
        for variable in (self.api_key_env,) if self.api_key_env else self.key_variables:
            key_host = self.key_hosts.get(variable)
            if key_host is None and (not os.environ.get(variable) or not is_public_name(host)):
                continue  # a private service, without a key or in the local network
            if host != key_host and network_scope(host) != "loopback" and not is_allowed_variable(variable):
                owner = f"of {key_host}" if key_host else f"in {variable}"
                yield (
                    "base_url",
                    f".base_url would send the key {owner} to {host}. If that is intended, allow its "
                    f"variable outside the file: export {ALLOWED_VARIABLES}={variable}",
                )
                return


@dataclass(frozen=True, kw_only=True)
class HostedOptions(EndpointOptions):
    """Options common to all providers; `options_for` adds the provider's variables and address."""

    provider: ClassVar[Provider]

    model: str | None = option("Model name; default: the provider's default model.", default=None)
    instruction: str | None = option("Ranking criteria, for models that follow instructions.", default=None)
    base_url: str | None = option("Base URL of the service; default: the provider's own.", default=None, kind="address")
    timeout_s: float = option("Maximum time for one request, in seconds.", default=10.0, gt=0)
    cross_encoder_reranking_enabled: bool | None = option(
        "`false` disables this reranker; so does the variable RESIFT_CROSS_ENCODER_RERANKING_ENABLED.", default=None
    )
    max_concurrency: int = option("Maximum number of requests in flight.", default=8, min=1)
    batch_over: int = option("Pools larger than this are split into batches.", default=80, min=0)
    batch_size: int = option("Documents per batch.", default=60, min=1)
    price_per_million_tokens: float | None = option("Price in dollars; overrides the price table.", default=None, min=0)
    price_per_thousand_searches: float | None = option("Price for providers that bill by search.", default=None, min=0)
    max_usd_per_call: float | None = option("Skip this tier if a call would cost more dollars.", default=None, min=0)
    max_usd_per_minute: float | None = option("Skip this tier while the last minute cost more.", default=None, min=0)
    max_usd_per_day: float | None = option("Skip this tier while the last 24 hours cost more.", default=None, min=0)


def options_for(provider: Provider) -> type[HostedOptions]:
    """Return the options class of one provider, whose key comes from the variables that it declares."""
    host = urlsplit(provider.base_url or "").hostname
    options: type[HostedOptions] = dataclasses.make_dataclass(
        "HostedOptions",
        [("api_key_env", str | None, option(_KEY_HELP, default=None, kind="variable", variables=provider.key_env))],
        bases=(HostedOptions,),
        namespace={
            "__doc__": f"Options of {provider.name} in a pipeline file.",
            "provider": provider,
            "key_hosts": dict.fromkeys(provider.key_env, host) if host else {},
            "key_variables": provider.key_env,
        },
        frozen=True,
        kw_only=True,
    )
    return options


# --- Factories: targets of the entry points in `resift.rerankers` -------------------------------------------

ENABLED_VARIABLE = "RESIFT_CROSS_ENCODER_RERANKING_ENABLED"
_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})


@check_arguments
def hosted_reranker(
    provider: str, *, cross_encoder_reranking_enabled: bool | None = None, **options: JsonValue
) -> HostedReranker | None:
    """Return the provider's reranker, or None (for `Tiered`) without a key or if hosted reranking is switched off."""
    find_provider(provider)
    if not is_enabled(cross_encoder_reranking_enabled):
        return None
    try:
        return HostedReranker(provider, **options)
    except MissingKeyError as exc:
        log.warning("%s Continuing without this reranker.", exc)
        return None


_production: HostedReranker | None = None
_production_lock = ForkSafeLock()


def get_production_cross_encoder_reranker(
    *, cross_encoder_reranking_enabled: bool | None = None
) -> HostedReranker | None:
    """Return this process's Voyage reranker, or None while its key is unset or hosted reranking is off."""
    global _production
    if not is_enabled(cross_encoder_reranking_enabled):
        return None
    with _production_lock:
        if _production is None:
            _production = hosted_reranker("voyage", cross_encoder_reranking_enabled=True)
        return _production


def is_enabled(setting: bool | None) -> bool:
    """Return the setting, or else the value in the environment, or else True."""
    if setting is not None:
        return setting
    value = os.environ.get(ENABLED_VARIABLE, "").strip().lower()
    if value and value not in _ON | _OFF:
        raise ConfigError(f"{ENABLED_VARIABLE} is {value!r}; set it to true or false.")
    return value not in _OFF


class HostedFactory:
    """Entry point of a provider: creates its reranker, or returns None without a key."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.Options = options_for(find_provider(provider))

    def __call__(self, **options: JsonValue) -> HostedReranker | None:
        """Return the provider's reranker, or None if its key is unset or it is switched off."""
        return hosted_reranker(self.provider, **options)

    def required(self, *, cross_encoder_reranking_enabled: bool | None = None, **options: JsonValue) -> HostedReranker:
        """Return the provider's reranker; raise ConfigError if its key is unset or it is switched off."""
        if not is_enabled(cross_encoder_reranking_enabled):
            raise ConfigError(f"{self.provider} is switched off: {ENABLED_VARIABLE} or its option is false.")
        return HostedReranker(self.provider, **options)


voyage = HostedFactory("voyage")
cohere = HostedFactory("cohere")
cohere_v1 = HostedFactory("cohere-v1")
jina = HostedFactory("jina")
mixedbread = HostedFactory("mixedbread")
tei = HostedFactory("tei")
vllm = HostedFactory("vllm")
infinity = HostedFactory("infinity")
