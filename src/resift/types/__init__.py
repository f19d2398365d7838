"""Core data types: Hit, Scores, Ranking and Trace. No I/O."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.types.hit import Hit as Hit
    from resift.types.hit import JsonMapping as JsonMapping
    from resift.types.hit import JsonObject as JsonObject
    from resift.types.hit import JsonValue as JsonValue
    from resift.types.hit import Metadata as Metadata
    from resift.types.hit import Where as Where
    from resift.types.hit import rescored as rescored
    from resift.types.hit import set_original as set_original
    from resift.types.hit import sort_key as sort_key
    from resift.types.hit import to_finite_float as to_finite_float
    from resift.types.hit import with_scores as with_scores
    from resift.types.ranking import Ranking as Ranking
    from resift.types.ranking import get_trace as get_trace
    from resift.types.ranking import to_json as to_json
    from resift.types.scores import Languages as Languages
    from resift.types.scores import ScorerInfo as ScorerInfo
    from resift.types.scores import Scores as Scores
    from resift.types.scores import ScoreScale as ScoreScale
    from resift.types.scores import check_languages as check_languages
    from resift.types.scores import check_score_scale as check_score_scale
    from resift.types.scores import is_english_only as is_english_only
    from resift.types.trace import RETRIEVAL_MODES as RETRIEVAL_MODES
    from resift.types.trace import FusedHits as FusedHits
    from resift.types.trace import StageKind as StageKind
    from resift.types.trace import StageRecord as StageRecord
    from resift.types.trace import Step as Step
    from resift.types.trace import Trace as Trace
    from resift.types.trace import cut_record as cut_record
    from resift.types.trace import make_record as make_record
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        hit: Hit JsonMapping JsonObject JsonValue Metadata Where sort_key to_finite_float with_scores
        hit: set_original rescored
        ranking: Ranking get_trace to_json
        scores: Languages ScorerInfo Scores ScoreScale check_languages check_score_scale is_english_only
        trace: RETRIEVAL_MODES FusedHits StageKind StageRecord Step Trace cut_record make_record
        """,
        renamed={
            "Fused": "FusedHits",
            "by_score": "sort_key",
            "finite": "to_finite_float",
            "record_of": "make_record",
            "trace_of": "get_trace",
        },
    )
