"""Draw the path of each hit through the stages as terminal text, SVG or an HTML page.

`Ranking.explain()` is the entry point. `reasons` describes a path in words (`Ranking.why`). `flow` converts the
trace to columns, positions and moves. `explanation` draws for terminals, `svg` and `page` for browsers.
"""

from resift.explain.explanation import Explanation
from resift.explain.flow import Flow, read_flow

__all__ = ["Explanation", "Flow", "read_flow"]
