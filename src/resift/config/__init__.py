"""Pipelines described in a YAML file: `tree` reads it, `rooms` say what may stand in it, `build` makes it.

Loading checks everything and names file, line and the fix. Secrets never stand in the file.
"""

from __future__ import annotations

from resift.config.build import pipeline_from_config, pipeline_from_yaml
from resift.config.load import inspect_yaml, load_plain, load_yaml

__all__ = ["inspect_yaml", "load_plain", "load_yaml", "pipeline_from_config", "pipeline_from_yaml"]
