"""Tiered scoring: the first scorer that can respond in time scores the pool."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from resift import errors
from resift.deadline import Deadline
from resift.errors import InputError, ProviderBadAnswer, redact
from resift.events import Scored, Sink, emit
from resift.protocols import FollowsInstructions, Scorer, describe_scorer, display_name, required_capabilities
from resift.resilience.breaker import CircuitBreaker, breakers
from resift.resilience.budget import Budget
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments

HANDOVER_S = 0.02  # maximum time between a scorer's deadline and its later timeout

SkipReason = Literal["circuit_breaker", "budget", "api_error", "cost"]


_SKIP_REASONS: dict[type[Exception], SkipReason] = {
    errors.CircuitOpenError: "circuit_breaker", errors.DeadlineExceeded: "budget", errors.CostLimitExceeded: "cost",
}  # fmt: skip


class CrossEncoderSkipped(Scored, name="cross_encoder_skipped"):
    """A tier before the last one did not score the pool; `error` is the type of the exception."""

    reason: SkipReason
    error: str | None
    remaining_ms: float | None


class CrossEncoderSucceeded(Scored, name="cross_encoder_succeeded"):
    """A tier before the last one scored the pool, so the fallback did not run."""

    unscored: int


class FallbackReranked(Scored, name="fallback_reranked"):
    """The last tier scored the pool; `degraded` is False if no other tier was configured."""

    degraded: bool


@dataclass(frozen=True, slots=True)
class Tier:
    """A scorer with the breaker and the budget that decide whether it is called."""

    scorer: Scorer
    breaker: CircuitBreaker | None = None
    budget: Budget | None = None

    @property
    def name(self) -> str:
        """The scorer's name."""
        return display_name(self.scorer)


class _Skip(Exception):
    """The reason why a tier did not score: a code for programs and a message for people."""

    def __init__(self, reason: SkipReason, message: str, error: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.error = error


class Tiered:
    """Scores with the first tier that is available; all tiers but the last may be skipped or fail.

    `primary=None` (no API key, or switched off) is intended: the fallback runs and the scores are not degraded. If
    the primary is skipped or fails, the fallback's scores are `degraded`, with the reason. An error of the last tier
    is raised, and `rescore` then keeps the previous order. Without `breaker=`, a primary shares the breaker for its
    `breaker_key` or gets a new one. A scorer with a `breaker` attribute keeps that breaker.
    """

    @check_arguments
    def __init__(
        self,
        primary: Scorer | Tier | None,
        fallback: Scorer | Tier | Sequence[Scorer | Tier] | None,
        *,
        breaker: CircuitBreaker | None = None,
        budget: Budget | None = None,
        sink: Sink | None = None,
        name: str = "tiered",
    ) -> None:
        self.name = name
        self._sink = sink
        self._budget = budget or Budget()
        fallbacks = fallback if isinstance(fallback, Sequence) else [fallback]
        scorers = (primary, *fallbacks)
        optional = [tier if tier is None or isinstance(tier, Tier) else Tier(tier) for tier in scorers]
        if breaker is not None and optional[0] is not None:
            optional[0] = replace(optional[0], breaker=breaker)
        tiers = [tier for tier in optional if tier is not None]
        if not tiers:
            raise InputError("Tiered has no tier: primary and fallback are None. Pass at least one scorer.")
        # The last tier gets no breaker, because there is no other tier to call instead.
        for i, tier in enumerate(tiers[:-1]):
            if tier.breaker is None and scorer_breaker(tier.scorer) is None:
                tiers[i] = replace(tier, breaker=breakers.for_scorer(tier.scorer))
        self.tiers = tuple(tiers)

    def __repr__(self) -> str:
        return f"Tiered({' > '.join(tier.name for tier in self.tiers)})"

    @property
    def breaker(self) -> CircuitBreaker | None:
        """The breaker of the first tier, which shows whether the primary is available."""
        return self.tiers[0].breaker or scorer_breaker(self.tiers[0].scorer)

    @property
    def requires(self) -> frozenset[str]:
        """The capabilities that the tiers require."""
        return frozenset(name for tier in self.tiers for name in required_capabilities(tier.scorer))

    @property
    def info(self) -> ScorerInfo:
        """The description that all tiers share. Scores have the description of the tier that produced them."""
        first, *others = (describe_scorer(tier.scorer) for tier in self.tiers)
        if all(replace(other, name=first.name) == first for other in others):
            return replace(first, name=self.name)
        return ScorerInfo(name=self.name)

    def with_instruction(self, instruction: str) -> Self:
        """Return a copy with an instruction for the tiers that follow one; it shares breakers and budgets."""
        clone = copy.copy(self)
        clone.tiers = tuple(
            replace(tier, scorer=tier.scorer.with_instruction(instruction))
            if isinstance(tier.scorer, FollowsInstructions)
            else tier
            for tier in self.tiers
        )
        return clone

    async def aclose(self) -> None:
        """Close all tiers that can be closed."""
        for tier in self.tiers:
            if hasattr(tier.scorer, "aclose"):
                await tier.scorer.aclose()

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the scores of the first tier that is available; raises the error of the last tier."""
        # Without hits, no tier is called: an empty call would count as a success of its provider.
        if not hits:
            return Scores((), self.tiers[0].name)
        skipped: list[str] = []
        for tier in self.tiers[:-1]:
            started_s = deadline.clock()
            try:
                scores = await self._attempt(tier, query, hits, deadline)
            except _Skip as skip:
                left_s = deadline.remaining_s()
                event = CrossEncoderSkipped(
                    provider=tier.name,
                    reason=skip.reason,
                    candidates=len(hits),
                    error=skip.error,
                    remaining_ms=None if math.isinf(left_s) else left_s * 1000,
                    latency_ms=_elapsed_ms(deadline, started_s),
                )
                emit(self._sink, event)
                skipped.append(f"{skip.reason}: {skip.message.rstrip('.')}")
                continue
            success = CrossEncoderSucceeded(
                provider=scores.provider,
                candidates=len(hits),
                unscored=sum(value is None for value in scores.values),
                latency_ms=_elapsed_ms(deadline, started_s),
            )
            emit(self._sink, success)
            return _mark_degraded(scores, skipped)
        return await self._score_last(query, hits, deadline, skipped)

    async def _attempt(self, tier: Tier, query: str, hits: Sequence[Hit], deadline: Deadline) -> Scores:
        budget = tier.budget or self._budget
        if tier.breaker is not None and tier.breaker.refuses(sink=self._sink):
            raise _Skip("circuit_breaker", f"the breaker of {tier.name} is open")
        # Checked before the permit is acquired, because a skipped call must not use up the probe.
        if not budget.allows(len(hits), deadline, provider=tier.name):
            needed_s = budget.needed_s(len(hits), provider=tier.name) + budget.reserve_s
            left_s = deadline.remaining_s()
            raise _Skip("budget", f"{tier.name} needs {needed_s:.2f} s and {left_s:.2f} s are left")
        started_s = deadline.clock()
        try:
            scores = await self._call_guarded(tier, query, hits, deadline.reserve(budget.reserve_s))
        except Exception as exc:
            # Only timeouts tell something about the latency.
            if isinstance(exc, TimeoutError):
                spent_s = deadline.clock() - started_s
                budget.record(len(hits), spent_s, provider=tier.name, finished=False)
            for kind, reason in _SKIP_REASONS.items():
                if isinstance(exc, kind):
                    raise _Skip(reason, str(exc)) from exc
            # The message of an unknown exception may quote a document; its type cannot.
            raise _Skip("api_error", f"{tier.name} failed: {redact(exc)}", type(exc).__name__) from exc
        spent_s = deadline.clock() - started_s
        budget.record(len(hits), spent_s, provider=tier.name, finished=not scores.partial)
        return scores

    async def _score_last(self, query: str, hits: Sequence[Hit], deadline: Deadline, skipped: list[str]) -> Scores:
        tier = self.tiers[-1]
        started_s = deadline.clock()
        # The last tier always gets its reserved time, even if the tiers before it overran theirs.
        extended = Deadline(max(deadline.at_s, started_s + self._budget.reserve_s), deadline.clock)
        try:
            scores = await self._call_guarded(tier, query, hits, extended)
        except Exception as exc:
            if not skipped:
                raise
            raise errors.ResiftError(f"{'; '.join(skipped)}; then {tier.name} failed: {redact(exc)}") from exc
        scores = _mark_degraded(scores, skipped, ran=tier.name)
        event = FallbackReranked(
            provider=scores.provider,
            candidates=len(hits),
            latency_ms=_elapsed_ms(deadline, started_s),
            degraded=scores.degraded,
        )
        emit(self._sink, event)
        return scores

    async def _call_guarded(self, tier: Tier, query: str, hits: Sequence[Hit], deadline: Deadline) -> Scores:
        """Call the scorer inside its breaker, so that a response without scores also counts as a failure."""
        if tier.breaker is not None:
            async with tier.breaker.guard(deadline, sink=self._sink):
                return await _call_scorer(tier, query, hits, deadline)
        if scorer_breaker(tier.scorer) is not None:
            # The scorer has its own timeout. To its breaker, a second timeout would look like a cancelled call.
            return await _call_scorer(tier, query, hits, deadline)
        timer = asyncio.timeout(deadline.timeout_s)
        try:
            async with timer:
                return await _call_scorer(tier, query, hits, deadline)
        except TimeoutError as exc:
            if not timer.expired():
                raise
            raise errors.ProviderTimeout(f"{tier.name} did not answer in time.", provider=tier.name) from exc


async def _call_scorer(tier: Tier, query: str, hits: Sequence[Hit], deadline: Deadline) -> Scores:
    # The deadline is a little early, so that the scorer can return partial scores instead of being cancelled.
    until = deadline.sooner(tier.breaker.timeout_s if tier.breaker else None)
    early = until.reserve(min(HANDOVER_S, 0.1 * until.remaining_s()))
    scores = await tier.scorer.score(query, hits, deadline=early)
    n, name = len(hits), tier.name
    if len(scores.values) != n:
        raise ProviderBadAnswer(f"{name} returned {len(scores.values)} scores for {n} hits.", provider=name)
    values = [value for value in scores.values if value is not None]
    # A response without scores is a failure: the breaker counts it and the next tier is called.
    if not values:
        why = f": {scores.reason}" if scores.reason else ""
        raise ProviderBadAnswer(f"{name} scored none of {n} hits{why}.", provider=name)
    if not all(map(math.isfinite, values)):
        raise ProviderBadAnswer(f"{name} returned a score that is not finite.", provider=name)
    return scores if scores.scorer else replace(scores, scorer=describe_scorer(tier.scorer))


def scorer_breaker(scorer: Scorer | None) -> CircuitBreaker | None:
    """Return the `breaker` attribute of a scorer, or None; most scorers do not have one."""
    breaker = getattr(scorer, "breaker", None)
    return breaker if isinstance(breaker, CircuitBreaker) else None


def _mark_degraded(scores: Scores, skipped: list[str], *, ran: str = "") -> Scores:
    if not skipped:
        return scores
    reason = "; ".join(part for part in (*skipped, f"{ran} ran instead" if ran else "", scores.reason) if part)
    return replace(scores, degraded=True, reason=reason)


def _elapsed_ms(deadline: Deadline, started_s: float) -> float:
    return (deadline.clock() - started_s) * 1000
