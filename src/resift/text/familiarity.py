"""Old path of `resift.text.languages`."""  # OLD PATH: remove

from resift.text.languages import *  # noqa: F403
