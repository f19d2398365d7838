"""Brings pages that stand beside docs/ into the site: ARCHITECTURE.md and its like, and the examples.

Links between them and docs/ are written for who reads the repository; here they are turned to fit the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Leave out pages of the navigation that do not exist yet."""
    config.nav = existing_pages(config.nav)
    return config


def existing_pages(nav: list[Any]) -> list[Any]:
    """Return a navigation without missing pages and without empty sections."""
    kept: list[Any] = []
    for entry in nav:
        title, target = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(target, list):
            inner = existing_pages(target)
            kept += [{title: inner}] if inner else []
        elif (ROOT / "docs" / target).exists() or target in BESIDE or target.startswith("examples/"):
            kept.append(entry)
    return kept


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and the examples."""
    from mkdocs.structure.files import File

    shown = (".md", ".py", ".ipynb")
    examples = [path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in shown]
    for path in [*(ROOT / name for name in BESIDE), *examples]:
        uri, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a link of the repository into one of the site: docs/ is its root."""
    uri = page.file.src_uri
    beside = uri in BESIDE or uri.startswith("examples/")
    here = posixpath.dirname(uri if beside else f"docs/{uri}")

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[1]))
        inside = target.removeprefix("docs/")
        if inside == target and not beside and not target.startswith(("examples/", *BESIDE)):
            return match[1]
        return posixpath.relpath(inside, posixpath.dirname(uri) or ".")

    return LINK.sub(turned, markdown)
