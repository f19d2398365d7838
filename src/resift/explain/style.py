"""Old path of the style sheets in `resift.explain.svg`."""  # OLD PATH: remove

from resift.explain.svg import *  # noqa: F403
