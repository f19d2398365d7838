"""From the section `rerank` to its stage: one scorer, or tiers of scorers with a breaker and a budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

from resift.config.settings import Settings
from resift.errors import ConfigError
from resift.events import Sink
from resift.pipeline.pool import Pool
from resift.pipeline.stages import AdaptiveDepth, Rerank
from resift.plugins import built_by
from resift.protocols import Scorer
from resift.rerankers.hosted.hosted_options import HostedOptions
from resift.resilience.breaker import CircuitBreaker
from resift.resilience.budget import Budget, BudgetOptions
from resift.resilience.circuit import BreakerOptions
from resift.resilience.registry import breakers
from resift.resilience.tiered import Tiered


class RunsWithout:
    """Stands where a reranker would: the answer says that it was made without, and what is missing."""

    name = "rerank"

    def __init__(self, missing: str) -> None:
        self.missing = missing

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool as it is, degraded."""
        return pool.degrade(f"{self.name}: runs without, {self.missing}")


def check_rerank(settings: Settings, add: Callable[[int | None, str], None]) -> None:
    """Note what single keys cannot show."""
    ways = settings.written & {"kind", "tiers"}
    if len(ways) == 2:
        add(settings.line_of("tiers"), "rerank has both 'kind' and 'tiers'; keep one of them.")
    if not ways:
        add(settings.line, "rerank needs either 'kind' or 'tiers'.")
    for name in ("breaker", "budget"):
        if settings[name] is not None and len(settings["tiers"] or ()) < 2:
            add(
                settings.line_of(name),
                f"rerank.{name} protects one tier by another; it needs two or more 'tiers'.",
            )


def build_rerank(settings: Settings, *, sink: Sink | None = None) -> Rerank | RunsWithout | None:
    """Return the reranking stage; None where every scorer is switched off."""
    sections = [settings] if settings["kind"] else settings["tiers"]
    scorers = [scorer for section in sections if (scorer := _scorer(section)) is not None]
    if not scorers:
        # A key that is not set is a gap that answers must show; a switch that is off is a decision.
        missing = [f"{name} is not set" for section in sections for name in keys_not_set(section)]
        return RunsWithout(", ".join(dict.fromkeys(missing))) if missing else None
    scorer = scorers[0] if settings["kind"] else _tiered(scorers, settings, sink)
    options = {"depth": AdaptiveDepth(), **settings.given("depth", "missing_text")}
    return Rerank(scorer, **options)


def keys_not_set(settings: Settings) -> list[str]:
    """Return the variable that a scorer without a key waits for; none where it is switched off on purpose."""
    if settings.get("cross_encoder_reranking_enabled") is False or settings.get("api_key_file"):
        return []
    dialect = settings.options.dialect if isinstance(settings.options, HostedOptions) else None
    own = dialect.key_env if dialect is not None and dialect.needs_key else ()
    named = (settings["api_key_env"],) if settings.get("api_key_env") else own
    return [] if any(os.environ.get(name) for name in named) else list(named[:1])


def _scorer(settings: Settings) -> Scorer | None:
    scorer = built_by(settings.plugin, settings["kind"], settings.arguments())
    if scorer is not None and not isinstance(scorer, Scorer):
        raise ConfigError(
            f"{settings['kind']!r} is a {type(scorer).__name__}, which does not score hits. If it makes one "
            "list of several, register it in 'resift.fusion' and name it under fusion.method."
        )
    return scorer


def _tiered(scorers: list[Scorer], settings: Settings, sink: Sink | None) -> Scorer:
    budget = settings["budget"]
    return Tiered(
        scorers[0],
        scorers[1:],
        breaker=_breaker(settings["breaker"], scorers[0]) if len(scorers) > 1 else None,
        budget=Budget(**asdict(budget.part(BudgetOptions))) if budget else None,
        sink=sink,
    )


def _breaker(settings: Settings | None, scorer: Scorer) -> CircuitBreaker | None:
    if settings is None:
        return None
    rules = asdict(settings.part(BreakerOptions))
    # Pipelines of one process share the breaker of an upstream; the first one's numbers hold.
    return breakers.for_scorer(scorer, **rules)
