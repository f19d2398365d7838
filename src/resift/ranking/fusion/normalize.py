"""Old path of `resift.ranking.fusion.score_based`."""  # OLD PATH: remove

from resift.ranking.fusion.score_based import *  # noqa: F403
