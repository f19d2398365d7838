"""Pipelines described in a YAML file: `tree` reads it, `sections` and plugins say what may stand in it.

Loading checks everything and names file, line and the fix. Secrets never stand in the file.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.config.build import pipeline_from_config as pipeline_from_config
    from resift.config.build import pipeline_from_yaml as pipeline_from_yaml
    from resift.config.load import inspect_yaml as inspect_yaml
    from resift.config.load import load_plain as load_plain
    from resift.config.load import load_yaml as load_yaml
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        build: pipeline_from_config pipeline_from_yaml
        load: inspect_yaml load_plain load_yaml
        """,
    )
