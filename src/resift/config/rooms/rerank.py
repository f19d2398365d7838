"""The section `rerank`: one scorer, or tiers of scorers with a breaker and a budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from resift.config.schema import Key, Section, Settings
from resift.fusion.methods import METHODS
from resift.models.embedding import Embedder
from resift.models.loading import of_kind
from resift.plugins import available_rerankers, load_reranker
from resift.protocols import Scorer
from resift.rerankers.rescore import provider_of
from resift.resilience import Budget, CircuitBreaker, Tiered, breakers
from resift.retrieval.stages import Rerank

HOSTED = ("voyage", "cohere", "cohere-v1", "jina", "mixedbread", "tei", "vllm", "infinity")


def scorer_kinds() -> list[str]:
    """Return the names of all installed rerankers that score; fusion methods have a section of their own."""
    return [name for name in available_rerankers() if name not in METHODS]


def _local(kind: Any) -> tuple[Key, ...]:
    return (
        Key(
            name="model",
            kind="text",
            about="The model; only those on the allowlist load.",
            choices=lambda: sorted(of_kind(kind)),
        ),
        Key(
            name="folder",
            kind="path",
            must_exist=True,
            about="Folder with the model's files, instead of the cache.",
        ),
    )


_API_KEY = Key(
    name="api_key_env",
    kind="variable",
    about="Environment variable that holds the key, if not the provider's own. Unset means: skip this tier.",
)
_API_KEY_FILE = Key(name="api_key_file", kind="path", must_exist=True, about="File that holds the key.")
_BASE_URL = Key(name="base_url", kind="address", about="Address of the service, if not the provider's own.")
_LOOPBACK = Key(name="allow_loopback", kind="flag", about="Allow plain http to this machine.")
_TIMEOUT = Key(name="timeout_s", kind="number", above=0, about="Longest wait for one request, in seconds.")

_HOSTED_KEYS = (
    Key(name="model", kind="text", about="The provider's model."),
    _API_KEY,
    _API_KEY_FILE,
    _BASE_URL,
    _LOOPBACK,
    _TIMEOUT,
    Key(
        name="cross_encoder_reranking_enabled",
        kind="flag",
        about="`false` switches it off; so does the variable RESIFT_CROSS_ENCODER_RERANKING_ENABLED.",
    ),
    Key(name="max_concurrency", kind="int", least=1, about="Most requests in flight at once."),
    Key(name="batch_over", kind="int", least=0, about="Pools larger than this are split (80 unless given)."),
    Key(name="batch_size", kind="int", least=1, about="Size of the parts (60 unless given)."),
)

_BY_KIND: dict[str, tuple[Key, ...]] = {
    "cross-encoder": (
        *_local("cross-encoder"),
        Key(
            name="aggregate",
            kind="text",
            about="What a long document's windows add up to.",
            choices=("max", "mean", "first"),
        ),
        Key(name="max_windows", kind="int", least=1, about="Most windows of one document that are read."),
    ),
    "cascade": (
        Key(name="k", kind="int", least=1, about="Stop once the best this many are settled (10)."),
        Key(name="patience", kind="int", least=1, about="Settled: this many in a row changed nothing (20)."),
    ),
    "late-interaction": _local("late-interaction"),
    "zero-shot": _local("nli"),
    "semantic-bm25": (
        Key(
            name="semantic_weight", kind="number", least=0, about="Weight of the meaning (0.7 unless given)."
        ),
        Key(name="bm25_weight", kind="number", least=0, about="Weight of the words (0.3 unless given)."),
        Key(
            name="embedder",
            kind="text",
            about="Model for the meaning; without one, words alone decide.",
            choices=lambda: sorted(of_kind("bi-encoder")),
        ),
    ),
    "llm": (
        Key(name="base_url", kind="address", required=True, about="An OpenAI-compatible endpoint."),
        Key(name="model", kind="text", required=True, about="The chat model."),
        _API_KEY,
        _API_KEY_FILE,
        Key(name="window", kind="int", least=2, about="Hits per question (20 unless given)."),
        Key(name="step", kind="int", least=1, about="How far the window moves (10 unless given)."),
        _LOOPBACK,
        _TIMEOUT,
    ),
    **dict.fromkeys(HOSTED, _HOSTED_KEYS),
}

_OPTIONS = Key(name="options", kind="options", about="Arguments for the constructor, for scorers of others.")
_KIND_ABOUT = "The scorer."

TIER = Section(
    name="rerank.tiers",
    about="One tier: the first that can answer in time scores the pool, and exactly one does.",
    keys=(
        Key(name="kind", kind="text", required=True, about=_KIND_ABOUT, choices=scorer_kinds),
        _OPTIONS,
    ),
    by_kind=_BY_KIND,
)

BREAKER = Section(
    name="rerank.breaker",
    about="When to stop asking a tier that fails.",
    keys=(
        Key(name="failure_threshold", kind="int", least=1, about="Failures in a row that open it (3)."),
        Key(name="cooldown_s", kind="number", above=0, about="Seconds until it is tried again (60)."),
        Key(
            name="success_threshold", kind="int", least=1, about="Successes in a row that close it again (2)."
        ),
        Key(name="timeout_s", kind="number", above=0, about="Longest guarded call, in seconds (30)."),
    ),
)

BUDGET = Section(
    name="rerank.budget",
    about="When there is too little time to ask a tier.",
    keys=(
        Key(
            name="absolute_floor_s", kind="number", least=0, about="Never ask with less time than this (0.2)."
        ),
        Key(
            name="per_item_floor_s",
            kind="number",
            least=0,
            about="Seconds per hit to begin with (0.025); learns.",
        ),
        Key(
            name="reserve_s",
            kind="number",
            least=0,
            about="Kept back so that the last tier can always run (0.05).",
        ),
    ),
)

SECTION = Section(
    name="rerank",
    about="Who puts the best hits into their final order: one `kind`, or `tiers`.",
    keys=(
        Key(name="kind", kind="text", about=_KIND_ABOUT, choices=scorer_kinds),
        _OPTIONS,
        Key(name="depth", kind="int", least=1, default=20, about="How many of the best hits are reranked."),
        Key(
            name="missing_text",
            kind="text",
            about="What happens to a hit without text.",
            choices=("last", "empty", "id", "raise"),
        ),
        Key(
            name="tiers",
            kind="sections",
            section=TIER,
            about="Several scorers: the best first, the surest last.",
        ),
        Key(name="breaker", kind="section", section=BREAKER, about="The first tier's circuit breaker."),
        Key(
            name="budget", kind="section", section=BUDGET, about="Time that a tier needs to be asked at all."
        ),
    ),
    by_kind=_BY_KIND,
)


def check(settings: Settings, add: Callable[[int | None, str], None]) -> None:
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


def build(settings: Settings, *, sink: Any = None) -> Rerank | None:
    """Return the reranking stage; None where every scorer is switched off or has no key."""
    scorer = _one(settings) if settings["kind"] else _tiered(settings, sink)
    if scorer is None:
        return None
    return Rerank(scorer, **settings.given("depth", "missing_text"))


def without_key(settings: Settings) -> list[str]:
    """Return the environment variables that are named but not set."""
    named = [
        part["api_key_env"] for part in (settings, *(settings["tiers"] or ())) if part.get("api_key_env")
    ]
    return [name for name in named if not os.environ.get(name)]


def _one(settings: Settings) -> Scorer | None:
    kind = settings["kind"]
    names = [key.name for key in _BY_KIND.get(kind, ())]
    options = {**settings.given(*names), **(settings["options"] or {})}
    if "model" in options and kind not in HOSTED and kind != "llm":
        options["model_name"] = options.pop("model")
    if "embedder" in options:
        options["embedder"] = Embedder(options["embedder"])
    variable = options.get("api_key_env")
    if variable is not None and not os.environ.get(variable):
        return None
    if variable is not None and kind in HOSTED:
        options["api_key"] = os.environ[options.pop("api_key_env")]
    scorer: Scorer | None = load_reranker(kind, **options)
    return scorer


def _tiered(settings: Settings, sink: Any) -> Scorer | None:
    scorers = [scorer for tier in settings["tiers"] if (scorer := _one(tier)) is not None]
    if not scorers:
        return None
    budget = settings["budget"]
    return Tiered(
        scorers[0],
        scorers[1:],
        breaker=_breaker(settings["breaker"], scorers[0]) if len(scorers) > 1 else None,
        budget=Budget(**budget.plain()) if budget else None,
        sink=sink,
    )


def _breaker(settings: Settings | None, scorer: Scorer) -> CircuitBreaker | None:
    if settings is None:
        return None
    # Pipelines of one process share the breaker of an upstream; the first one's numbers hold.
    key = getattr(scorer, "breaker_key", None)
    if isinstance(key, tuple):
        return breakers.for_key(*key, **settings.plain())
    return CircuitBreaker(name=provider_of(scorer), **settings.plain())
