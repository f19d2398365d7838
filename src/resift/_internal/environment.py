"""Rules for the environment variables and key files that a pipeline file may use.

A pipeline file may come from somebody else, and it names the servers that receive secrets. So a secret is
only available to options that declare it, unless the owner of the machine allows more.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from resift.errors import InputError

ALLOWED_VARIABLES = "RESIFT_ALLOW_VARIABLES"
"""Environment variable with a comma-separated list of names that pipeline files may use in addresses and as keys."""

ALLOWED_KEY_FILES = "RESIFT_ALLOW_KEY_FILES"
"""Environment variable with files and folders, separated as in PATH, that pipeline files may read keys from."""

MOUNTED_SECRETS = Path("/run/secrets")  # folder where container runtimes mount secrets for this program

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_allowed_variable(variable: str, declared: Collection[str] = ()) -> bool:
    """Whether a pipeline file may use a variable in an option that declares the variables in `declared`."""
    allowed = os.environ.get(ALLOWED_VARIABLES, "").replace(" ", "").split(",")
    return variable in declared or variable in allowed


def forbidden_variable_message(variable: str, declared: Collection[str] = ()) -> str:
    """Return the error message for a variable that a pipeline file may not use in this option."""
    expected = f" ({', '.join(declared)})" if declared else ""
    return (
        f"{variable}, which is not meant for this option{expected}: a file could leak any secret. "
        f"To allow it, run outside the file: export {ALLOWED_VARIABLES}={variable}"
    )


def is_allowed_key_file(file: Path, folder: Path) -> bool:
    """Whether a pipeline file in `folder` may read a key from this file."""
    allowed = [Path(path) for path in os.environ.get(ALLOWED_KEY_FILES, "").split(os.pathsep) if path]
    real = file.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (folder, MOUNTED_SECRETS, *allowed))


def require_variable(name: str) -> str:
    """Return the value of an environment variable; if it is not set, raises InputError with the command to set it."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputError(f"{name} is not set. Run: export {name}=…")
    return value


@contextlib.contextmanager
def temporary_variable(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable inside a block; with None, leave it unchanged."""
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
