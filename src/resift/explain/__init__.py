"""The path of each hit through the stages, as a picture: terminal text, SVG, or a page of HTML.

`Ranking.explain()` is the door. `reasons` puts a hit's path into words; `flow` reads the trace into columns
and places, `moves` says who rose and why, `layout` puts them on a grid; `text_picture`, `svg_picture` and
`page` draw. Nothing here ranks, and only `Explanation.save` writes.
"""

from resift.explain.explanation import Explanation
from resift.explain.flow import Flow, flow_of

__all__ = ["Explanation", "Flow", "flow_of"]
