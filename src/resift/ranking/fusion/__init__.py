"""Rank fusion: merge several ranked lists into one. The functions are named after their papers.

`rrf` is the default. `compare` shows how other engines would order the same lists. `METHODS` maps names to
functions. All functions take lists of `Hit`s and return a new list.
"""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
