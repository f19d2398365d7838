"""Old path of `resift.explain.shorten`."""  # OLD PATH: remove

from resift.explain.shorten import *  # noqa: F403
from resift.explain.shorten import display_width

cells = display_width
