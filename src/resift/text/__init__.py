"""One analysis of words, in every script, for word search, BM25 and similarity. Knows no store, no model."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.text.analysis import Analysis as Analysis
    from resift.text.analysis import Analyzer as Analyzer
    from resift.text.bm25 import BM25 as BM25
    from resift.text.snippets import Snippet as Snippet
    from resift.text.snippets import snippet as snippet
    from resift.text.tokenization import jaccard as jaccard
    from resift.text.tokenization import words as words
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        analysis: Analysis Analyzer
        bm25: BM25
        snippets: Snippet snippet
        tokenization: jaccard words
        """,
    )
