"""Text analysis for keyword search, BM25 and text similarity, in all scripts."""

from resift.text.analysis import BM25, Analysis, Analyzer
from resift.text.snippets import Snippet, snippet
from resift.text.tokenization import jaccard, words

__all__ = ["BM25", "Analysis", "Analyzer", "Snippet", "jaccard", "snippet", "words"]
