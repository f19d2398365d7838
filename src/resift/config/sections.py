"""The sections of a pipeline file and their keys.

Options of a store, scorer, fusion method, gate profile or stage are declared next to its class
(`resift.validation`) and join the section that names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import ClassVar, Literal

from resift import plugins
from resift.external.candidates import MissingText
from resift.pipeline.defaults import FETCH
from resift.pipeline.fan_out import OverFetch
from resift.pipeline.pipeline import TIMEOUT_S
from resift.pipeline.stages import GateOptions
from resift.ranking.blend import Blend
from resift.ranking.context import ContextOptions
from resift.ranking.gate import Profile
from resift.ranking.guard import Guard
from resift.ranking.prune import PruneOptions
from resift.ranking.shape import ShapePolicy
from resift.resilience.budget import BudgetOptions
from resift.resilience.circuit import BreakerOptions
from resift.types import JsonMapping
from resift.validation import DEFAULT_K, Option, Options, declared_options, option, option_values, options_class
from resift.validation.options import TYPE_NAMES

Packages = Sequence[str] | None
_FREE = "Further arguments for the constructor that are not declared as options."


@dataclass(frozen=True, kw_only=True)
class StoreSection(Options):
    """One store and its search options."""

    name: str = option("Name of the store in rankings, weights and capabilities.")
    kind: str = option("The engine.", plugins=plugins.STORES, choices=plugins.available_stores)
    k: int | None = option("Number of hits to request from this store; set by `fetch` if missing.", default=None, min=1)
    timeout_s: float | None = option("Timeout of this store, in seconds.", default=None, gt=0)
    cypher: str | None = option("Statement of a graph store; the query is its parameter `$query`.", default=None)
    parameters: JsonMapping | None = option("Further parameters of `cypher`.", default=None)
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class FusionSection(Options):
    """How the result lists of the stores are fused."""

    method: str = option(
        "The method; `rrf` if the section has `k_param` or `dialect`.",
        default="weighted",
        plugins=plugins.FUSION,
        choices=plugins.available_fusions,
    )
    weights: Mapping[str, float] | None = option(
        "Weight per store, 1 by default; 0 excludes a store. If the store docs supports keyword and vector search, its "
        "lists can be weighted separately as docs.text and docs.vectors.",
        default=None,
        min=0,
    )
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class GateSection(Options):
    """Which hits are passed to the reranker."""

    includes: ClassVar[tuple[type, ...]] = (Profile, GateOptions)
    profile: str = option(
        "Profile with the initial thresholds.",
        default="neutral",
        plugins=plugins.GATE_PROFILES,
        choices=plugins.available_gate_profiles,
    )


@dataclass(frozen=True, kw_only=True)
class TierSection(Options):
    """One scorer in a list of tiers."""

    kind: str = option("The scorer.", plugins=plugins.RERANKERS, choices=plugins.available_scorers)
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class RerankSection(Options):
    """The reranker for the best hits."""

    kind: str | None = option("The scorer.", default=None, plugins=plugins.RERANKERS, choices=plugins.available_scorers)
    options: JsonMapping | None = option(_FREE, default=None)
    depth: int | None = option("Number of hits to rerank: 20; adaptive after `weighted` fusion.", default=None, min=1)
    missing_text: MissingText = option("What happens to a hit without text.", default="last")
    tiers: tuple[TierSection, ...] | None = option(
        "Several scorers, the best first, the most reliable last. The first one that can respond in time scores "
        "all candidates.",
        default=None,
    )
    breaker: BreakerOptions | None = option("Circuit breaker of the first tier: when to stop calling it.", default=None)
    budget: BudgetOptions | None = option("Minimum remaining time for a tier to be called.", default=None)


@dataclass(frozen=True, kw_only=True)
class GuardSection(Options):
    """Limits the damage that one reranker can do."""

    includes: ClassVar[tuple[type, ...]] = (Blend, Guard)
    blend: bool = option("Blend the reranker's scores with the first stage's.", default=True)
    do_no_harm: bool = option("Keep a strong first-stage hit in the results.", default=True)


@dataclass(frozen=True, kw_only=True)
class ShapeSection(Options):
    """The final selection."""

    includes: ClassVar[tuple[type, ...]] = (ShapePolicy,)
    section: str | None = option("The default section of a search.", default=None)


@dataclass(frozen=True, kw_only=True)
class StageSection(Options):
    """One stage from another package."""

    kind: str = option("The stage.", plugins=plugins.STAGES, choices=plugins.available_stages)
    after: Literal["fusion", "gate", "rerank", "shape"] = option(
        "The section after which it runs, even if the file does not contain that section.", default="rerank"
    )
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class PipelineFile(Options):
    """A pipeline: stores, fusion, gate, rerank, guard, shape. Only `stores` is required."""

    stores: tuple[StoreSection, ...] = option(
        "The stores, searched in parallel. If several return a hit, its text and metadata come from the first one."
    )
    k: int = option("Number of hits to return.", default=10, min=1, max=10_000)
    deadline_s: float | None = option("Deadline of a search, in seconds; none by default.", default=None, gt=0)
    timeout_s: float = option("Timeout for stores without their own `timeout_s`, in seconds.", default=TIMEOUT_S, gt=0)
    capabilities: tuple[str, ...] | None = option(
        "Granted capabilities, such as db.docs:read or net.voyage; all by default.", default=None
    )
    fetch: OverFetch | None = option(
        "Number of hits to request from each store: factor × k, at least `minimum`, at most `cap`.",
        default=None,
        defaults_from=FETCH,
    )
    fusion: FusionSection | None = option(
        "How the result lists of the stores are fused. Without this section: `weighted`, as in the default "
        "pipeline, or `rrf` if the file has a `gate` whose `signal` is not a store.",
        default=None,
    )
    gate: GateSection | None = option(
        "Which hits are passed to the reranker: thresholds per section, relaxed or tightened by grade.", default=None
    )
    rerank: RerankSection | None = option("The reranker for the best hits: one `kind`, or `tiers`.", default=None)
    guard: GuardSection | None = option(
        "Limits the damage that one reranker can do. On by default if there is a `rerank` section.", default=None
    )
    shape: ShapeSection | None = option(
        "The final selection: precedence, folding, diversity, recovery and quotas, before the cut to k.", default=None
    )
    context: ContextOptions | None = option("Final hits with the chunks around them, for a prompt.", default=None)
    prune: PruneOptions | None = option("Keep only sentences that answer the query, by reranker score.", default=None)
    stages: tuple[StageSection, ...] | None = option(
        "Stages from other packages, run in this order, each after the section that it names.", default=None
    )


_INTRODUCTION = """# Configuration reference

All keys of a pipeline file. This page is generated from the declarations that check the file:
`resift config reference`. To write a file, see [Configuration](../guides/run/pipeline-files.md).
"""


def reference_page(*, packages: Packages = ("resift",)) -> str:
    """Return the page as Markdown, with the plugins of these packages; None means all installed ones."""
    about = (PipelineFile.__doc__ or "").strip()
    return _INTRODUCTION + "".join(_sections(PipelineFile, "", about, packages)) + "\n"


def default_file(store: str = "docs.db") -> str:
    """Return the default pipeline for an index as a commented file; every value is the effective default."""
    from resift.rerankers.cross_encoder import DEFAULT_MODEL, PIPELINE_FIRST_PASS, PIPELINE_MAX_WINDOWS

    guard = GuardSection()
    template = resources.files("resift.config").joinpath("default_pipeline.txt").read_text(encoding="utf-8")
    return template.format(
        store=json.dumps(store, ensure_ascii=False),  # a JSON string is a YAML string
        **asdict(FETCH),
        method=FusionSection().method,
        model=DEFAULT_MODEL,
        max_windows=PIPELINE_MAX_WINDOWS,
        first_pass=PIPELINE_FIRST_PASS,
        blend=str(guard.blend).lower(),
        do_no_harm=str(guard.do_no_harm).lower(),
        k=DEFAULT_K,
    )


def _sections(declared: type, name: str, about: str, packages: Packages, base: object = None) -> Iterator[str]:
    title = f"`{name}`" if name else "The file"
    options = declared_options(declared)
    defaults = {} if base is None else option_values(base)
    yield f"\n## {title}\n\n{about}\n\n{_table(options, packages, defaults)}"
    for setting in options:
        # Plugins with the same options share a table.
        tables: dict[str, list[str]] = {}
        for plugin in _plugin_names(setting, packages):
            plugin_options = options_class(plugins.load_plugin(setting.plugins, plugin))
            if plugin_options is not None and declared_options(plugin_options):
                tables.setdefault(_table(declared_options(plugin_options), packages), []).append(f"`{plugin}`")
        for table, names in tables.items():
            yield f"\n\nWith {setting.name} {', '.join(names)}, also:\n\n{table}"
    yield "\n"
    for setting in options:
        if setting.nested is not None:
            inner = f"{name}.{setting.name}".lstrip(".")
            yield from _sections(setting.nested, inner, setting.help, packages, setting.defaults_from)


def _plugin_names(setting: Option, packages: Packages) -> list[str]:
    names = setting.allowed() if setting.plugins else []
    return [name for name in names if packages is None or plugins.plugin_package(setting.plugins, name) in packages]


def _table(options: Sequence[Option], packages: Packages, defaults: Mapping[str, object] | None = None) -> str:
    rows = []
    for setting in options:
        kind = TYPE_NAMES[setting.kind] + (f", {setting.bounds()}" if setting.bounds() else "")
        choices = _plugin_names(setting, packages) if setting.plugins else setting.allowed()
        if choices:
            prefix = "some of" if setting.kind == "texts" else "one of"
            kind = f"{prefix} {', '.join(f'`{choice}`' for choice in choices)}"
        default = _show_default(setting, (defaults or {}).get(setting.name, setting.default))
        rows.append(f"| `{setting.name}` | {kind} | {default} | {setting.help} |")
    return "\n".join(["| key | type | default | description |", "|---|---|---|---|", *rows])


def _show_default(setting: Option, value: object) -> str:
    if setting.required:
        return "**required**"
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {item}" for key, item in value.items())
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
