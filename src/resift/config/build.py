"""Check keys against each other, and build a pipeline from checked settings, section by section."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar, Unpack

from resift import errors
from resift.config.sections import GuardSection
from resift.config.settings import Problems, Settings
from resift.errors import ConfigError, InputError, ResiftError, did_you_mean
from resift.events import Sink
from resift.pipeline import stages
from resift.pipeline.defaults import FETCH, views
from resift.pipeline.fan_out import OverFetch, StoreRef
from resift.pipeline.pipeline import Pipeline, PipelineOptions
from resift.pipeline.pool import Pool, Stage
from resift.plugins import build_plugin
from resift.protocols import DocStore, GraphStore, Releasable, Reranker, Scorer, ScoringStage
from resift.ranking.blend import Blend
from resift.ranking.context import ContextOptions
from resift.ranking.gate import OWN_SCORE, Profile, load_profile
from resift.ranking.guard import Guard
from resift.ranking.prune import PruneOptions
from resift.ranking.shape import ShapePolicy
from resift.rerankers.hosted.scorer import HostedOptions
from resift.resilience.breaker import breakers
from resift.resilience.budget import Budget, BudgetOptions
from resift.resilience.circuit import BreakerOptions
from resift.resilience.tiered import Tiered
from resift.stores.graph.cypher_guard import check_cypher
from resift.types import JsonObject
from resift.validation import option_values

T = TypeVar("T")


def build(settings: Settings, *, file: str | None = None, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Assemble the pipeline, or raise ConfigError with the line of the section that could not be built."""
    with ExitStack() as undo:
        refs: list[StoreRef] = []
        for section in settings["stores"]:
            branches = _build_section(section, build_store, file) or []
            # Close the stores if the pipeline cannot be built.
            if branches and isinstance(branches[0].owner, Releasable):
                undo.callback(branches[0].owner.release)
            refs += branches
        configured = _build_stages(settings, refs, file, options.get("sink"))
        arguments: JsonObject = {
            "stores": refs,
            **settings.select("k", "deadline_s", "timeout_s"),
            "fetch": FETCH if settings["fetch"] is None else settings["fetch"].part(OverFetch),
            **{name: stage for name, stage in configured.items() if stage is not None},
        }
        if settings["capabilities"] is not None:
            arguments["capabilities"] = list(settings["capabilities"])
        # Arguments of the caller override the file.
        pipeline = Pipeline(**{**arguments, **options})
        undo.pop_all()  # from now on the pipeline closes the stores
    return pipeline


def _build_section(section: Settings | None, make: Callable[[Settings], T], file: str | None) -> T | None:
    """Build one section and add its line to errors; None if the section is missing."""
    if section is None:
        return None
    try:
        return make(section)
    except errors.MissingExtraError:
        raise
    except (ResiftError, ValueError) as exc:
        if isinstance(exc, ConfigError) and exc.line:
            raise
        raise ConfigError(str(exc), file=file, line=section.line) from exc


def _build_stages(settings: Settings, refs: Sequence[StoreRef], file: str | None, sink: Sink | None) -> JsonObject:
    """Return the configured stages, by name of the Pipeline argument."""
    fuse = _build_section(settings["fusion"], build_fusion, file)
    rerank = _build_section(settings["rerank"], lambda section: build_rerank(section, sink=sink), file)
    # The gate tightens only while the reranker can be relied on to choose among fewer hits.
    breaker_closed = partial(stages.is_breaker_closed, rerank.scorer if isinstance(rerank, ScoringStage) else None)
    gate_options: JsonObject = {"refs": refs, "breaker_closed": breaker_closed}
    gate = _build_section(settings["gate"], lambda section: build_gate(section, **gate_options), file)
    guard, shape, reranks = settings["guard"], settings["shape"], isinstance(rerank, stages.Rerank)
    shaping = _build_section(shape or guard or settings, lambda _: build_shape(guard, shape, reranks=reranks), file)
    custom: dict[str, list[Stage]] = {}
    for section in settings["stages"] or ():
        stage: Stage | None = _build_section(section, build_named_plugin, file)
        if stage is not None:
            custom.setdefault(section["after"], []).append(stage)
    last_stages: list[Stage] = []
    if settings["context"] is not None:
        last_stages.append(stages.Context(settings["context"].part(ContextOptions)))
    if settings["prune"] is not None:
        last_stages.append(stages.Prune(settings["prune"].part(PruneOptions)))
    return {
        "fuse": fuse,
        "rerank": rerank,
        "gate": [*custom.get("fusion", ()), *([gate] if gate else []), *custom.get("gate", ())] or None,
        "guard": custom.get("rerank"),
        "shape": [*([shaping] if shaping else []), *custom.get("shape", ()), *last_stages] or None,
    }


def build_named_plugin(settings: Settings) -> Any:
    """Return the object of the plugin that a section names under `kind`."""
    return build_plugin(settings.plugin, settings["kind"], settings.arguments())


def build_store(settings: Settings) -> list[StoreRef]:
    """Open one store and return its branches: two if it supports both keyword and vector search."""
    name = settings["name"]
    store = build_plugin(settings.plugin, settings["kind"], {"name": name, **settings.arguments()})
    # A graph store only runs its Cypher statement; it has no keyword or vector search.
    branches = [store] if settings["cypher"] else views(store)
    options = settings.select("k", "timeout_s", "cypher", "parameters")
    # Views have their own names (docs.text, docs.vectors); a single branch has the name in the file.
    return [StoreRef(name=name if len(branches) == 1 else branch.name, store=branch, **options) for branch in branches]


def branch_names(stores: Sequence[Settings]) -> list[str]:
    """Return all possible branch names of the stores."""
    return [f"{store['name']}{branch}" for store in stores for branch in ("", ".text", ".vectors")]


def _check_store(settings: Settings, problems: Problems) -> None:
    where, cypher = f"stores[{settings['name']}]", settings["cypher"]
    is_graph = isinstance(settings.plugin, GraphStore) and not isinstance(settings.plugin, DocStore)
    if is_graph and "cypher" not in settings.written:
        problems.add(settings.line, f"{where} is a graph; it needs the key 'cypher' with a statement that uses $query.")
    if not cypher:
        return
    line = settings.key_line("cypher")
    if "$query" not in cypher:
        problems.add(line, f"{where}.cypher does not use $query, so every query would return the same hits.")
    try:
        check_cypher(cypher)
    except errors.UnsafeCypherError as exc:
        problems.add(line, f"{where}.cypher: {exc}")


def build_fusion(settings: Settings) -> stages.Fuse:
    """Return the fusion stage."""
    # Build the method once now, so that unknown options are rejected before the first search.
    _build_fuser(settings, list(settings["weights"] or ()))
    return stages.Fuse(make=lambda names: _build_fuser(settings, names))


def _build_fuser(settings: Settings, names: Sequence[str]) -> Reranker:
    """Return the fusion method for stores with these names, in declared order."""
    options = settings.arguments()
    if settings["weights"]:
        # Weights are passed by position, because an empty list has no hits that could name its store.
        options["weights"] = [store_weight(settings["weights"], name) for name in names] or None
    parameters = inspect.signature(settings.plugin).parameters.values()
    if any(parameter.name == "sources" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        options["sources"] = list(names)
    fuser: Reranker = build_plugin(settings.plugin, settings["method"], options)
    return fuser


def store_weight(weights: Mapping[str, float], name: str) -> float:
    """Return the weight of a list; docs.text inherits the weight of docs unless it has its own."""
    return weights.get(name, weights.get(name.rpartition(".")[0], 1.0))


def build_gate(
    settings: Settings, refs: Sequence[StoreRef], *, breaker_closed: Callable[[], bool] | None = None
) -> stages.Gate:
    """Return the gate for these stores."""
    signal, stores = settings["signal"], [ref.name for ref in refs]
    if signal != OWN_SCORE and signal not in stores:
        # `docs` is ambiguous if the store has the branches docs.text and docs.vectors.
        raise InputError(f"gate.signal is {signal!r}, which has no scores. {did_you_mean(signal, stores)}")
    profile = load_profile(settings["profile"], **settings.arguments())
    # Only keys in the file override the profile; defaults of the section do not.
    values = option_values(settings.part(Profile))
    changes = {name: values[name] for name in ("signal", "source_type", "scale") if name in settings.written}
    if "floor" in settings.written:
        changes["default"] = settings["floor"]
    if settings["floors"]:
        changes["floors"] = {**profile.floors, **settings["floors"]}
    options = option_values(settings.part(stages.GateOptions))
    gate = stages.Gate(replace(profile, **changes), breaker_closed=breaker_closed, **options)
    gate.check_scale(refs)
    return gate


def _check_gate(settings: Settings, stores: Sequence[Settings], problems: Problems) -> None:
    known_names = [OWN_SCORE, *branch_names(stores)]
    signal = settings["signal"] or OWN_SCORE
    if signal not in known_names:
        message = f"gate.signal names the unknown store {signal!r}. {did_you_mean(signal, known_names)}"
        problems.add(settings.key_line("signal"), message)
        return
    if settings["profile"] is None:
        return
    try:
        profile = load_profile(settings["profile"])
    except (InputError, errors.PluginLoadError):
        return  # reported elsewhere, or a profile with required options
    branch = signal.rpartition(".")[2]
    store_scale = {OWN_SCORE: "fused", "text": "bm25", "vectors": "cosine"}.get(branch)
    try:
        profile = replace(profile, scale=settings["scale"] or profile.scale, signal=signal)
        profile.check_scale(store_scale, signal=signal)
    except InputError as exc:
        problems.add(settings.key_line("profile"), f"gate: {exc}")


class SkippedRerank:
    """Replaces a reranker that has no API key: rankings are degraded and name the missing variable."""

    name = "rerank"

    def __init__(self, missing: str) -> None:
        self.missing = missing

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with the same hits, marked as degraded."""
        return pool.degrade(f"{self.name}: skipped, {self.missing}")


def build_rerank(settings: Settings, *, sink: Sink | None = None) -> stages.Rerank | SkippedRerank | None:
    """Return the rerank stage; None if every scorer is switched off."""
    sections = [settings] if settings["kind"] else settings["tiers"]
    scorers = [scorer for section in sections if (scorer := _build_scorer(section)) is not None]
    if not scorers:
        # A missing key is a fault that rankings must report; a disabled scorer is a deliberate choice.
        missing = [f"{name} is not set" for section in sections for name in unset_key_variables(section)]
        return SkippedRerank(", ".join(dict.fromkeys(missing))) if missing else None
    scorer = scorers[0]
    if not settings["kind"]:
        breaker, budget = settings["breaker"], settings["budget"]
        # Pipelines in one process share the breaker of a service; the first pipeline sets its options.
        options = asdict(breaker.part(BreakerOptions)) if breaker else {}
        shared = breakers.for_scorer(scorer, **options) if breaker and scorers[1:] else None
        limits = Budget(**asdict(budget.part(BudgetOptions))) if budget else None
        scorer = Tiered(scorer, scorers[1:], breaker=shared, budget=limits, sink=sink)
    return stages.Rerank(scorer, **{"depth": stages.AdaptiveDepth(), **settings.select("depth", "missing_text")})


def _build_scorer(settings: Settings) -> Scorer | None:
    scorer = build_named_plugin(settings)
    if scorer is not None and not isinstance(scorer, Scorer):
        advice = "If it merges lists, register it in 'resift.fusion' and name it under fusion.method"
        problem = f"{settings['kind']!r} is a {type(scorer).__name__}, which does not score hits"
        raise ConfigError(f"{problem}. {advice}.")
    return scorer


def unset_key_variables(settings: Settings) -> list[str]:
    """Return the unset variable for the API key of a hosted scorer; empty if the scorer has a key or is off."""
    if settings.get("cross_encoder_reranking_enabled") is False or settings.get("api_key_file"):
        return []
    dialect = settings.options.provider if isinstance(settings.options, HostedOptions) else None
    default_names = dialect.key_env if dialect is not None and dialect.needs_key else ()
    names = (settings["api_key_env"],) if settings.get("api_key_env") else default_names
    return [] if any(os.environ.get(name) for name in names) else list(names[:1])


def _check_rerank(settings: Settings, problems: Problems) -> None:
    alternatives = settings.written & {"kind", "tiers"}
    if len(alternatives) == 2:
        problems.add(settings.key_line("tiers"), "rerank has both 'kind' and 'tiers'; keep one of them.")
    if not alternatives:
        problems.add(settings.line, "rerank needs either 'kind' or 'tiers'.")
    rule = "controls when the next tier takes over; it needs two or more 'tiers'"
    for name in ("breaker", "budget") if len(settings["tiers"] or ()) < 2 else ():
        if settings[name] is not None:
            problems.add(settings.key_line(name), f"rerank.{name} {rule}.")


def build_shape(guard: Settings | None, shape: Settings | None, *, reranks: bool) -> stages.Shape | None:
    """Return the stage that applies guard and shape; None if neither is needed."""
    if guard is None and shape is None and not reranks:
        return None
    policy = ShapePolicy() if shape is None else shape.part(ShapePolicy)
    if guard is not None:
        switches = guard.part(GuardSection)
        blend = guard.part(Blend) if switches.blend else None
        policy = replace(policy, blend=blend, guard=guard.part(Guard) if switches.do_no_harm else None)
    elif not reranks:
        policy = replace(policy, blend=None, guard=None)
    section = None if shape is None else shape["section"]
    return stages.Shape(policy, section=section, name="guard" if shape is None else "shape")


def check_sections(settings: Settings, problems: Problems) -> None:
    """Report every contradiction between keys that are valid on their own."""
    stores: list[Settings] = settings["stores"] or []
    lines: dict[str, int | None] = {}
    for store in stores:
        name = store["name"]
        if name is not None and name in lines:
            first = f", first in line {lines[name]}" if lines[name] else ""
            message = f"Two stores are named {name!r}{first}. Give each store a unique name."
            problems.add(store.key_line("name"), message)
        lines.setdefault(name, store.key_line("name"))
        _check_store(store, problems)
    _check_fusion(settings["fusion"], stores, problems)
    fetch, k = settings["fetch"], settings["k"]
    if fetch is not None and fetch["cap"] < k:
        message = f"fetch.cap is {fetch['cap']}, but k is {k}; raise cap, or stores will return fewer than k hits."
        problems.add(fetch.key_line("cap"), message)
    if fetch is not None and "minimum" in fetch.written and fetch["cap"] < fetch["minimum"]:
        message = f"fetch.cap is {fetch['cap']}, below fetch.minimum {fetch['minimum']}. Raise cap."
        problems.add(fetch.key_line("cap"), message)
    if settings["rerank"] is not None:
        _check_rerank(settings["rerank"], problems)
    if settings["gate"] is not None:
        _check_gate(settings["gate"], stores, problems)
    if settings["prune"] is not None and settings["rerank"] is None:
        message = "prune scores sentences with the reranker; add a 'rerank' section."
        problems.add(settings["prune"].line, message)
    recovery = None if settings["shape"] is None else settings["shape"]["recovery"]
    if recovery is None:
        return
    for section, survivors in (recovery["survivors"] or {}).items():
        counts = survivors.values() if isinstance(survivors, Mapping) else [survivors]
        if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
            message = f"shape.recovery.survivors.{section} must map source types to integers ≥ 0: {{EXCEL: 2}}."
            problems.add(recovery.key_line("survivors"), message)


def _check_fusion(settings: Settings | None, stores: Sequence[Settings], problems: Problems) -> None:
    if settings is None:
        return
    # A weight for a missing store would silently have no effect.
    known_names = branch_names(stores)
    for name in settings["weights"] or ():
        if name not in known_names:
            message = f"fusion.weights names the unknown store {name!r}. {did_you_mean(name, known_names)}"
            problems.add(settings.key_line("weights"), message)
    if getattr(settings.options, "dialect", None) is not None:
        try:
            build_fusion(settings)
        except InputError as exc:
            problems.add(settings.key_line("dialect"), f"fusion: {exc}")
