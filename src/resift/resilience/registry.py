"""Old path of `resift.resilience.breaker`."""  # OLD PATH: remove

from resift.resilience.breaker import *  # noqa: F403
