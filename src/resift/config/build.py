"""From checked settings to a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar, Unpack

from resift.config.build_rerank import RunsWithout, build_rerank
from resift.config.build_stages import build_fusion, build_gate, build_shape, build_stage
from resift.config.build_stores import build_store
from resift.config.load import load_plain, load_yaml
from resift.config.settings import Settings
from resift.errors import ConfigError, MissingExtraError, ResiftError
from resift.events import Sink
from resift.pipeline.defaults import FETCH
from resift.pipeline.gating import closed
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.pipeline import Pipeline, PipelineOptions
from resift.pipeline.pool import Stage
from resift.pipeline.store_ref import StoreRef
from resift.protocols import Releasable, ScoringStage
from resift.types import JsonMapping, JsonObject

T = TypeVar("T")


def pipeline_from_yaml(path: str | Path, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Return the pipeline that a file describes; options are those of Pipeline and win over the file."""
    return build(load_yaml(path), file=str(path), **options)


def pipeline_from_config(config: JsonMapping, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Return the pipeline that a dict describes."""
    return build(load_plain(config), **options)


def build(settings: Settings, *, file: str | None = None, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Open the stores, load the models and put the pipeline together.

    Raises ConfigError with the line of the section that could not be built.
    """
    builder = _Builder(file)
    with ExitStack() as undo:
        refs: list[StoreRef] = []
        for section in settings["stores"]:
            made = builder.made(section, build_store) or []
            undo.callback(_release, made)
            refs += made
        stage = _stages(settings, builder, refs, options.get("sink"))
        parts: JsonObject = {
            "stores": refs,
            **settings.given("k", "deadline_s", "timeout_s"),
            "fetch": FETCH if settings["fetch"] is None else settings["fetch"].part(OverFetch),
            **{name: each for name, each in stage.items() if each is not None},
        }
        if settings["capabilities"] is not None:
            parts["capabilities"] = list(settings["capabilities"])
        # An argument of the caller wins over the file.
        pipeline = Pipeline(**{**parts, **options})
        undo.pop_all()  # from here on the pipeline closes the stores
    return pipeline


def _release(refs: Sequence[StoreRef]) -> None:
    """Close a store that was opened for a pipeline that could not be finished."""
    if isinstance(refs[0].owner, Releasable):
        refs[0].owner.release()


def _stages(settings: Settings, builder: _Builder, refs: Sequence[StoreRef], sink: Sink | None) -> JsonObject:
    """Return the stages that the settings ask for, by the name of Pipeline's argument."""
    stage: JsonObject = {
        "fuse": builder.made(settings["fusion"], build_fusion),
        "rerank": builder.made(settings["rerank"], lambda section: build_rerank(section, sink=sink)),
    }
    # The gate tightens only while the reranker can be trusted to choose among fewer.
    rerank = stage["rerank"]
    breaker_closed = closed(rerank.scorer if isinstance(rerank, ScoringStage) else None)
    stage["gate"] = builder.made(
        settings["gate"], lambda section: build_gate(section, refs, breaker_closed=breaker_closed)
    )
    reranks = stage["rerank"] is not None and not isinstance(stage["rerank"], RunsWithout)
    at = settings["shape"] or settings["guard"] or settings
    stage["shape"] = builder.made(
        at, lambda _: build_shape(settings["guard"], settings["shape"], reranks=reranks)
    )
    further: dict[str, list[Stage]] = {}
    for section in settings["stages"] or ():
        made = builder.made(section, build_stage)
        further.setdefault(section["after"], []).extend([] if made is None else [made])
    return _with_further(stage, further)


def _with_further(stage: JsonObject, further: Mapping[str, list[Stage]]) -> JsonObject:
    """Return the stages with those of other packages, each behind the section that it names."""

    def around(before: str, name: str, after: str) -> list[Stage]:
        own = [] if stage[name] is None else [stage[name]]
        return [*further.get(before, ()), *own, *further.get(after, ())]

    if not further:
        return stage
    return {
        **stage,
        "gate": around("fusion", "gate", "gate"),
        "guard": further.get("rerank"),
        "shape": around("", "shape", "shape"),
    }


class _Builder:
    """Makes objects of sections and gives their errors a line."""

    def __init__(self, file: str | None) -> None:
        self.file = file

    def made(self, section: Settings | None, make: Callable[[Settings], T]) -> T | None:
        """Return what `make` makes of the section; nothing for a section that is not there."""
        if section is None:
            return None
        try:
            return make(section)
        except MissingExtraError:
            raise
        except (ResiftError, ValueError) as exc:
            if isinstance(exc, ConfigError) and exc.line:
                raise
            raise ConfigError(str(exc), file=self.file, line=section.line) from exc
