"""Old path of `resift.ranking.fusion.methods`."""  # OLD PATH: remove

from resift.ranking.fusion.methods import *  # noqa: F403
