"""Old path of `resift._internal.files`."""  # OLD PATH: remove

from resift._internal.files import file_lock

locked = file_lock
