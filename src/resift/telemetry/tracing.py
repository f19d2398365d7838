"""Old path of `resift.telemetry`."""  # OLD PATH: remove, and add a row to renamed_modules (0.2 docs used it)

from resift.telemetry import *  # noqa: F403
