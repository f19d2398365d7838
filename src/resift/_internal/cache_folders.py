r"""Where things are kept between runs: every folder that Resift makes for itself, and the hub client's.

`RESIFT_HOME` moves all of our own. Else they are where the system keeps caches: `~/.cache/resift` (or below
`XDG_CACHE_HOME`) on Linux, `~/Library/Caches/resift` on macOS, `%LOCALAPPDATA%\resift\Cache` on Windows.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

Use = Literal["models", "evaluation", "packs"]
"""What a folder is for: model files, indexes and finished answers of evaluations, knowledge packs."""


def cache_folder(use: Use) -> Path:
    """Return the folder for that use; it need not exist yet."""
    home = os.environ.get("RESIFT_HOME")
    return (_expanded(home) if home else _user_cache("resift")) / use


def hub_cache_folder() -> Path:
    """Return where the hub's own client keeps models, by its variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    home = os.environ.get("HF_HOME")
    if home:
        return _expanded(home) / "hub"
    # Its rule on every system, not that of the system.
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expanded(base) / "huggingface" / "hub"


def _user_cache(name: str) -> Path:
    from platformdirs import user_cache_path

    return _expanded(str(user_cache_path(name, appauthor=False)))


def _expanded(path: str) -> Path:
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        found = Path("~")
    # A user without a home, as in some containers: whatever lies there is verified like all else.
    return Path(tempfile.gettempdir()) / "resift-cache" if str(found).startswith("~") else found
