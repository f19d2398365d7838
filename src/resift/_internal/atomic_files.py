"""Old path of `resift._internal.files`."""  # OLD PATH: remove

from resift._internal.files import *  # noqa: F403
from resift._internal.files import write_all

write_whole = write_all
