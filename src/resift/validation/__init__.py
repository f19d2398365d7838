"""Validation at the boundary: arguments, options, files and request bodies.

- Public entry points check their arguments with the `check_…` functions (`checks`).
- Data is declared as types and read with `convert` (`declared_types`).
- Options of plugins and stages are declared as fields of a dataclass (`options`).

Code behind these checks trusts its callers.
"""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
