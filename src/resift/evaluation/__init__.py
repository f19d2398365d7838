"""Evaluation: measures, comparisons, recordings, replays, tuning and reports."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
