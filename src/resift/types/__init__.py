"""The values that flow through everything: Hit, Scores, Ranking and the trace. No I/O, no policy."""

from resift.types.hit import Hit, by_score, finite, rescored
from resift.types.ranking import Ranking, Scores, to_json
from resift.types.trace import Fused, StageKind, StageRecord, Step, Trace, cut_record, record_of, trace_of

__all__ = [
    "Fused",
    "Hit",
    "Ranking",
    "Scores",
    "StageKind",
    "StageRecord",
    "Step",
    "Trace",
    "by_score",
    "cut_record",
    "finite",
    "record_of",
    "rescored",
    "to_json",
    "trace_of",
]
