"""`python -m tools.build_rank_flow`: draws docs/pictures/rank-flow.svg, one query of the shipped sample.

The picture is what `ranking.explain().svg()` returns, so it shows real ranks and scores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import resift
from resift.demo import passages

QUERY = "how much notice must I give after two years here?"
DESCRIPTION = "Ranks of each hit in keyword search, vector search, fusion, reranking and blend."
TARGET = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "rank-flow.svg"


def main() -> int:
    """Index the sample, run one search and save its picture."""
    with tempfile.TemporaryDirectory() as folder:
        index = resift.Index(Path(folder) / "sample.db")
        index.add(passages())
        ranking = index.search(QUERY, k=10)
        picture = ranking.explain().svg().replace("</title>", f"</title><desc>{DESCRIPTION}</desc>", 1)
        TARGET.write_text(picture, encoding="utf-8")
        index.close()
    sys.stderr.write(f"wrote {TARGET.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
