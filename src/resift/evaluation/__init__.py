"""Evaluation: measures, comparisons, recordings, replays, tuning and reports."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.evaluation.evaluated_systems import System as System
    from resift.evaluation.evaluated_systems import find_system as find_system
    from resift.evaluation.measures import Judge as Judge
    from resift.evaluation.measures import Quality as Quality
    from resift.evaluation.measures import bootstrap_interval as bootstrap_interval
    from resift.evaluation.measures import holm as holm
    from resift.evaluation.measures import randomization_p as randomization_p
    from resift.evaluation.readers import Collection as Collection
    from resift.evaluation.readers import read_collection as read_collection
    from resift.evaluation.readers import read_qrels as read_qrels
    from resift.evaluation.readers import read_run as read_run
    from resift.evaluation.recording import Setting as Setting
    from resift.evaluation.recording import read_recording as read_recording
    from resift.evaluation.recording import record as record
    from resift.evaluation.runner import Difference as Difference
    from resift.evaluation.runner import Outcome as Outcome
    from resift.evaluation.runner import evaluate as evaluate
    from resift.evaluation.tuning import tune as tune
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        measures: Judge Quality bootstrap_interval holm randomization_p
        readers: Collection read_collection read_qrels read_run
        recording: read_recording record Setting
        runner: Difference Outcome evaluate
        evaluated_systems: System find_system
        tuning: tune
        """,
    )
