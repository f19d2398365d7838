"""Which environment variables and key files a pipeline file may use.

A file may come from somebody else, and what it names is sent to addresses that it names too. So a secret is
used only where the option was made for it, or where the owner of the machine allowed it outside the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from resift.errors import InputError

ALLOWED_VARIABLES = "RESIFT_ALLOW_VARIABLES"
"""Names of variables, with commas between them, that pipeline files may use in addresses and for keys."""

ALLOWED_KEY_FILES = "RESIFT_ALLOW_KEY_FILES"
"""Files and folders, separated as in PATH, that pipeline files may read keys from."""

MOUNTED_SECRETS = Path("/run/secrets")
"""Where container runtimes put secrets: what lies there was given to this program on purpose."""

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_allowed(variable: str, declared: Collection[str] = ()) -> bool:
    """Say whether a file may use that variable in a place that declares these."""
    return variable in declared or variable in os.environ.get(ALLOWED_VARIABLES, "").replace(" ", "").split(
        ","
    )


def refusal(variable: str, declared: Collection[str] = ()) -> str:
    """Return what is wrong with a variable that a file may not use here, and what to do."""
    made_for = f" ({', '.join(declared)})" if declared else ""
    return (
        f"{variable}, which is not made for this place{made_for}: a file could send any secret away. "
        f"If it is meant, allow it outside the file: export {ALLOWED_VARIABLES}={variable}"
    )


def filled(text: str) -> str:
    """Return the text with its variables filled in; all of them must be set."""
    return REFERENCE.sub(lambda match: os.environ[match[1]], text)


def unset(text: str) -> list[str]:
    """Return the variables in the text that are not set or empty."""
    return [name for name in REFERENCE.findall(text) if not os.environ.get(name)]


def may_hold_key(file: Path, folder: Path) -> bool:
    """Say whether a pipeline file in that folder may read a key from this file."""
    allowed = [Path(each) for each in os.environ.get(ALLOWED_KEY_FILES, "").split(os.pathsep) if each]
    real = file.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (folder, MOUNTED_SECRETS, *allowed))


def variable_value(name: str) -> str:
    """Return what an environment variable holds, or raise InputError with the line that sets it."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputError(f"{name} is not set. Run: export {name}=…")
    return value
