"""Merge, rerank and explain search results: the same order every time, with a reason for each position."""

from resift._internal import renamed_modules
from resift._internal.lazy_exports import lazy_exports

__version__ = "0.3.0"

renamed_modules.install()

__getattr__, __dir__, __all__ = lazy_exports(__name__)
