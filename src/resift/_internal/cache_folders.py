"""Old path of `resift._internal.files`."""  # OLD PATH: remove

from resift._internal.files import *  # noqa: F403
