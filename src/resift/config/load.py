"""From a file or a dict to checked settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from resift.config.consistency import check_whole
from resift.config.problems import Problems
from resift.config.reading import WHOLE, Reader
from resift.config.sections import PipelineFile
from resift.config.settings import Settings
from resift.config.tree import Tree, from_plain, read_file
from resift.errors import ConfigError
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.gate.profiles import OWN_SCORE
from resift.types import JsonMapping
from resift.validation import check_path


def load_yaml(path: str | Path) -> Settings:
    """Return the settings of a file; raises ConfigError with file, line and what to do."""
    settings, problems = inspect_yaml(path)
    return _sound(settings, problems)


def load_plain(config: JsonMapping, *, folder: Path | None = None) -> Settings:
    """Return the settings of a dict with the same keys; paths are relative to `folder` or here."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"The configuration is a {type(config).__name__}; pass a dict.")
    settings, problems = _checked(from_plain(config), Problems(), folder or Path.cwd(), expand=True)
    return _sound(settings, problems)


def inspect_yaml(path: str | Path, *, expand: bool = True) -> tuple[Settings | None, Problems]:
    """Return the settings as far as they can be read, and every mistake; raises only for unreadable YAML."""
    file = Path(check_path(path, "The pipeline file"))
    return _checked(read_file(file), Problems(str(path)), file.absolute().parent, expand=expand)


def _checked(
    tree: Tree, problems: Problems, folder: Path, *, expand: bool
) -> tuple[Settings | None, Problems]:
    _choose_fusion(tree)
    settings = Reader(problems, folder=folder, expand=expand).section(PipelineFile, tree, WHOLE)
    if settings is not None:
        check_whole(settings, problems)
    return settings, problems


def _choose_fusion(tree: Tree) -> None:
    """Write the fusion method into a tree that names none: what the default pipeline uses, or RRF.

    RRF stays where the file was written for it: `k_param` and `dialect` are options of RRF, and a gate whose
    signal is not a store compares fused scores with numbers.
    """
    if not isinstance(tree.value, dict):
        return
    fusion = tree.value.setdefault("fusion", Tree({}, tree.line))
    if fusion.value is None:
        fusion.value = {}
    if not isinstance(fusion.value, dict) or _plain_value(fusion, "method") is not None:
        return
    gate = tree.value.get("gate")
    gates_fused_scores = (
        gate is not None
        and isinstance(gate.value, dict)
        and _plain_value(gate, "signal") in (None, OWN_SCORE)
    )
    method = "rrf" if gates_fused_scores or fusion.value.keys() & {"k_param", "dialect"} else WEIGHTED
    fusion.value["method"] = Tree(method, fusion.line)


def _plain_value(tree: Tree, key: str) -> object:
    return tree.value[key].value if key in tree.value else None


def _sound(settings: Settings | None, problems: Problems) -> Settings:
    problems.refuse()
    if settings is None:
        raise ConfigError("The configuration is empty; start with `stores:`.", file=problems.file)
    return settings
