"""Which environment variables and key files a pipeline file may use.

A pipeline file may come from somebody else, and it also names the servers that secrets are sent to. So a
secret is used only by the options that declare it, or if the owner of the machine allowed it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from resift.errors import InputError

ALLOWED_VARIABLES = "RESIFT_ALLOW_VARIABLES"
"""Environment variable: names, separated by commas, that pipeline files may use in addresses and as keys."""

ALLOWED_KEY_FILES = "RESIFT_ALLOW_KEY_FILES"
"""Environment variable: files and folders, separated as in PATH, that pipeline files may read keys from."""

MOUNTED_SECRETS = Path("/run/secrets")
"""Where container runtimes mount the secrets of this program."""

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_allowed_variable(variable: str, declared: Collection[str] = ()) -> bool:
    """Whether a pipeline file may use that variable in an option that declares these."""
    allowed = os.environ.get(ALLOWED_VARIABLES, "").replace(" ", "").split(",")
    return variable in declared or variable in allowed


def forbidden_variable_message(variable: str, declared: Collection[str] = ()) -> str:
    """Return the error message for a variable that a file may not use in this option."""
    expected = f" ({', '.join(declared)})" if declared else ""
    return (
        f"{variable}, which is not meant for this option{expected}: a file could send any secret away. "
        f"To allow it, set outside the file: export {ALLOWED_VARIABLES}={variable}"
    )


def is_allowed_key_file(file: Path, folder: Path) -> bool:
    """Whether a pipeline file in that folder may read a key from this file."""
    allowed = [Path(path) for path in os.environ.get(ALLOWED_KEY_FILES, "").split(os.pathsep) if path]
    real = file.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (folder, MOUNTED_SECRETS, *allowed))


def require_variable(name: str) -> str:
    """Return the value of an environment variable; raises InputError with the command that sets it."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputError(f"{name} is not set. Run: export {name}=…")
    return value


@contextlib.contextmanager
def temporary_variable(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable for a block; None changes nothing."""
    if value is None:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
