"""Core data types: Hit, Scores, Ranking and Trace. No I/O."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    renamed={
        "Fused": "FusedHits",
        "by_score": "sort_key",
        "finite": "to_finite_float",
        "record_of": "make_record",
        "trace_of": "get_trace",
    },
)
