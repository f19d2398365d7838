"""Old path of `resift.explain.flow`."""  # OLD PATH: remove

from resift.explain.flow import *  # noqa: F403
