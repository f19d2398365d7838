"""Where evaluation keeps indexes and finished answers between runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder(given: Path | None = None) -> Path:
    """Return (and make) the folder given, else `$RESIFT_HOME/evaluation`, else one in the user's cache."""
    folder = given or _default()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _default() -> Path:
    home, xdg = os.environ.get("RESIFT_HOME"), os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(home) if home else Path(xdg or "~/.cache") / "resift"
        return base.expanduser() / "evaluation"
    except RuntimeError:
        # A user without a home, as in some containers.
        return Path(tempfile.gettempdir()) / "resift-cache" / "evaluation"
