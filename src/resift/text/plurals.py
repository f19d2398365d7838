"""Old path of `resift.text.stemming`."""  # OLD PATH: remove

from resift.text.stemming import *  # noqa: F403
