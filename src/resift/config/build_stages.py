"""From the sections `fusion`, `gate`, `guard` and `shape` to their stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from resift.config.build_stores import names_of
from resift.config.sections import GuardSection
from resift.config.settings import Settings
from resift.errors import InputError, PluginLoadError, did_you_mean
from resift.pipeline.gating import Gate, GateOptions
from resift.pipeline.pool import Stage
from resift.pipeline.shaping import Shape
from resift.pipeline.stages import Fuse
from resift.pipeline.store_ref import StoreRef
from resift.plugins import built_by
from resift.protocols import Reranker
from resift.ranking.gate.profiles import OWN_SCORE, Profile, profile_named
from resift.ranking.shape.blending import Blend
from resift.ranking.shape.composing import ShapePolicy
from resift.ranking.shape.guarding import Guard
from resift.types import JsonObject
from resift.validation import option_values

Add = Callable[[int | None, str], None]


def build_fusion(settings: Settings) -> Fuse:
    """Return the fusing stage."""
    # Refuses options that the method does not know, now rather than at a search.
    fuser(settings, list(settings["weights"] or ()))
    return Fuse(make=lambda names: fuser(settings, names))


def fuser(settings: Settings, names: Sequence[str]) -> Reranker:
    """Return the method for stores of these names, in declared order."""
    options = settings.arguments()
    if settings["weights"]:
        # By position: a store that gave nothing has no name in its empty list.
        options["weights"] = [weight_of(settings["weights"], name) for name in names] or None
    if _takes_sources(settings.plugin):
        options["sources"] = list(names)
    made: Reranker = built_by(settings.plugin, settings["method"], options)
    return made


def check_fusion(settings: Settings, add: Add) -> None:
    """Note options that the engine of a dialect has not."""
    if getattr(settings.options, "dialect", None) is None:
        return
    try:
        build_fusion(settings)
    except InputError as exc:
        add(settings.line_of("dialect"), f"fusion: {exc}")


def weight_of(weights: Mapping[str, float], name: str) -> float:
    """Return the weight of a list: docs.text has the weight of docs unless it has its own."""
    return weights.get(name, weights.get(name.rpartition(".")[0], 1.0))


def _takes_sources(plugin: Callable[..., object]) -> bool:
    """Say whether a method wants to know the declared order of stores: not all keep a hit's metadata."""
    parameters = inspect.signature(plugin).parameters.values()
    return any(each.name == "sources" or each.kind is each.VAR_KEYWORD for each in parameters)


def build_gate(
    settings: Settings, refs: Sequence[StoreRef], *, breaker_closed: Callable[[], bool] | None = None
) -> Gate:
    """Return the gating stage for these stores."""
    signal, stores = settings["signal"], [ref.name for ref in refs]
    if signal != OWN_SCORE and signal not in stores:
        # Known before, but it turned out to be asked by words and by vectors: then which of the two?
        raise InputError(f"gate.signal is {signal!r}, which gives no scores. {did_you_mean(signal, stores)}")
    profile = profile_named(settings["profile"], **settings.arguments())
    # Only what somebody wrote replaces the profile's own: a default of the section is no wish.
    written = option_values(settings.part(Profile))
    changes: JsonObject = {
        name: written[name] for name in ("signal", "source_type", "scale") if name in settings.written
    }
    if "floor" in settings.written:
        changes["default"] = settings["floor"]
    if settings["floors"]:
        changes["floors"] = {**profile.floors, **settings["floors"]}
    rules = option_values(settings.part(GateOptions))
    gate = Gate(replace(profile, **changes), breaker_closed=breaker_closed, **rules)
    gate.check_scale(refs)
    return gate


def check_gate(settings: Settings, whole: Settings, add: Add) -> None:
    """Note a signal that no store gives."""
    known = [OWN_SCORE, *(name for store in whole["stores"] or () for name in names_of(store))]
    signal = settings["signal"]
    if signal is not None and signal not in known:
        add(
            settings.line_of("signal"),
            f"gate.signal names the store {signal!r}. {did_you_mean(signal, known)}",
        )
    elif settings["profile"] is not None:
        side = (signal or OWN_SCORE).rpartition(".")[2]
        _check_scale(settings, {OWN_SCORE: "fused", "text": "bm25", "vectors": "cosine"}.get(side), add)


def _check_scale(settings: Settings, given: str | None, add: Add) -> None:
    """Note floors for another scale than that of the scores they would meet."""
    try:
        profile = profile_named(settings["profile"])
    except (InputError, PluginLoadError):
        return  # noted elsewhere, or a profile whose options are needed to make it
    scale = settings["scale"] or profile.scale
    try:
        signal = settings["signal"] or OWN_SCORE
        replace(profile, scale=scale, signal=signal).check_scale(given, signal=signal)
    except InputError as exc:
        line = settings.line_of("profile") or settings.line
        add(line, f"gate: {exc}")


def build_stage(settings: Settings) -> Stage:
    """Return the stage of another package that a section names."""
    made: Stage = built_by(settings.plugin, settings["kind"], settings.arguments())
    return made


def build_shape(guard: Settings | None, shape: Settings | None, *, reranks: bool) -> Shape | None:
    """Return the one stage of guard and shape, or None where neither is wanted."""
    if guard is None and shape is None and not reranks:
        return None
    policy = ShapePolicy() if shape is None else shape.part(ShapePolicy)
    section = None if shape is None else shape["section"]
    return Shape(
        _guarded(policy, guard, reranks=reranks), section=section, name="guard" if shape is None else "shape"
    )


def _guarded(policy: ShapePolicy, settings: Settings | None, *, reranks: bool) -> ShapePolicy:
    if settings is None:
        # Nothing to guard against where nothing is reranked.
        return policy if reranks else replace(policy, blend=None, guard=None)
    wanted = settings.part(GuardSection)
    return replace(
        policy,
        blend=settings.part(Blend) if wanted.blend else None,
        guard=settings.part(Guard) if wanted.do_no_harm else None,
    )


def check_shape(settings: Settings, add: Add) -> None:
    """Note survivors that are no counts per section and source type."""
    recovery = settings["recovery"]
    survivors = {} if recovery is None else recovery["survivors"] or {}
    for section, wanted in survivors.items():
        counts = wanted.values() if isinstance(wanted, Mapping) else [wanted]
        if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
            add(
                recovery.line_of("survivors"),
                f"shape.recovery.survivors.{section} must name whole numbers per source type: {{EXCEL: 2}}.",
            )
