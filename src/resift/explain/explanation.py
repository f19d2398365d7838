"""What `Ranking.explain` returns: one flow, in three forms."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resift._internal.atomic_files import atomic_write
from resift.errors import InputError
from resift.explain.flow import Flow
from resift.explain.text_picture import Paint, text_picture


@dataclass(frozen=True, slots=True)
class Explanation:
    """The path of each hit through the stages. Print it, show it in a notebook, or save it as a page.

    Pages and pictures hold ids and texts of hits, so they are as private as the data.
    """

    flow: Flow
    top: int = 10

    def text(self, *, width: int = 80, paint: Paint | None = None, curves: bool = True) -> str:
        """Return the picture for a terminal of that many columns; without curves, plain rows of ranks."""
        return text_picture(self.flow, width=width, top=self.top, paint=paint, curves=curves)

    def svg(self) -> str:
        """Return the picture as a self-contained SVG file."""
        from resift.explain.svg_picture import svg_file

        return svg_file(self.flow, top=self.top)

    def html(self) -> str:
        """Return a self-contained page: the picture, score parts per hit, what was left out and why."""
        from resift.explain.page import page

        return page(self.flow, top=self.top)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .html, .svg or .txt file, whole or not at all."""
        target = Path(path)
        forms: dict[str, Callable[[], str]] = {".html": self.html, ".svg": self.svg, ".txt": self.text}
        form = forms.get(target.suffix.lower())
        if form is None:
            raise InputError(f"Cannot save {target.name!r}: name a .html, .svg or .txt file.")
        return atomic_write(target, form().rstrip("\n") + "\n")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        text = f"{len(self.flow.kept)} hits, {len(self.flow.cut)} left out"
        return f"<Explanation of {text}; print it, or .save('page.html')>"

    def _repr_html_(self) -> str:
        from resift.explain.svg_picture import svg_file

        return svg_file(self.flow, top=self.top)
