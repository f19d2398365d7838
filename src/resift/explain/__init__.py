"""The path of each hit through the stages, as a picture: terminal text, SVG, or a page of HTML.

`Ranking.explain()` is the door. `reasons` puts a hit's path into words; `flow` reads the trace into columns
and places, `moves` says who rose and why, `layout` puts them on a grid; `text_picture`, `svg_picture` and
`page` draw. Nothing here ranks, and only `Explanation.save` writes.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.explain.explanation import Explanation as Explanation
    from resift.explain.flow import Flow as Flow
    from resift.explain.flow import flow_of as flow_of
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        explanation: Explanation
        flow: Flow flow_of
        """,
    )
