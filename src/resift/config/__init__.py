"""Pipelines described in a YAML file. Every mistake is reported with file, line and fix.

`yaml_nodes` parses the file into nodes with line numbers. `settings` checks the nodes against the options declared
for the file (`sections`) and for its plugins. `build` turns the settings into a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from resift.config.build import build, check_sections
from resift.config.sections import PipelineFile
from resift.config.settings import ROOT, Problems, Reader, Settings
from resift.config.yaml_nodes import YamlNode, from_plain, read_file
from resift.errors import ConfigError
from resift.pipeline.pipeline import Pipeline, PipelineOptions
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.gate import OWN_SCORE
from resift.types import JsonMapping
from resift.validation import check_path, type_name

__all__ = ["check_nodes", "inspect_yaml", "load_plain", "load_yaml", "pipeline_from_config", "pipeline_from_yaml"]


def pipeline_from_yaml(path: str | Path, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Return the pipeline described by a file; the options are those of Pipeline and override the file."""
    return build(load_yaml(path), file=str(path), **options)


def pipeline_from_config(config: JsonMapping, **options: Unpack[PipelineOptions]) -> Pipeline:
    """Return the pipeline described by a dict."""
    return build(load_plain(config), **options)


def load_yaml(path: str | Path, *, expand: bool = True) -> Settings:
    """Return the settings in a file, or raise ConfigError with file, line and fix."""
    return _require(*inspect_yaml(path, expand=expand))


def load_plain(config: JsonMapping, *, folder: Path | None = None) -> Settings:
    """Return the settings in a dict with the keys of a file; paths are relative to `folder` or the current folder."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"The configuration is {type_name(config)}; pass a dict.")
    return _require(*check_nodes(from_plain(config), Problems(), folder or Path.cwd()))


def inspect_yaml(path: str | Path, *, expand: bool = True) -> Checked:
    """Return the valid settings and every mistake; raise ConfigError only if the file is not plain YAML."""
    file = Path(check_path(path, "The pipeline file"))
    return check_nodes(read_file(file), Problems(str(path)), file.absolute().parent, expand=expand)


Checked = tuple[Settings | None, Problems]


def check_nodes(root: YamlNode, problems: Problems, folder: Path, *, expand: bool = True) -> Checked:
    """Return the settings in a file's nodes, and add every mistake to the problems."""
    _choose_fusion(root)
    settings = Reader(problems, folder=folder, expand=expand).section(PipelineFile, root, ROOT)
    if settings is not None:
        check_sections(settings, problems)
    return settings, problems


def _choose_fusion(root: YamlNode) -> None:
    """Set the fusion method if the file names none: that of the default pipeline, or RRF for files that rely on it.

    These have an option of RRF, or a gate whose signal is not a store and compares fused scores with fixed numbers.
    """
    if not isinstance(root.value, dict):
        return
    fusion = root.value.setdefault("fusion", YamlNode({}, root.line))
    if fusion.value is None:
        fusion.value = {}
    if not isinstance(fusion.value, dict) or fusion.get("method") is not None:
        return
    gate = root.value.get("gate")
    signal = None if gate is None else gate.get("signal")
    has_gate = gate is not None and isinstance(gate.value, dict)
    gates_fused_scores = has_gate and (signal is None or signal.value == OWN_SCORE)
    method = "rrf" if gates_fused_scores or fusion.value.keys() & {"k_param", "dialect"} else WEIGHTED
    fusion.value["method"] = YamlNode(method, fusion.line)


def _require(settings: Settings | None, problems: Problems) -> Settings:
    problems.raise_first()
    if settings is None:
        raise ConfigError("The configuration is empty; start with `stores:`.", file=problems.file)
    return settings
