"""The path of each hit through the stages, as a picture: terminal text, SVG, or a page of HTML.

`Ranking.explain()` is the entry point. `reasons` describes a path in words (`Ranking.why`), `flow` reads the
trace into columns, positions and moves, `explanation` draws for terminals, `svg` and `page` for browsers.
"""

from resift.explain.explanation import Explanation
from resift.explain.flow import Flow, read_flow

__all__ = ["Explanation", "Flow", "read_flow"]
