"""A model has no say about texts in a language it was not made for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import ceil

from resift.errors import UnfamiliarTextError
from resift.models.tokenizing import TextTokenizer

_LOOKED_AT = 10  # texts of the pool
_MOST = 0.75  # of them; fewer foreign texts among others are what a mixed index has


def check_familiar(tokenizer: TextTokenizer, model: str, query: str, texts: Sequence[str]) -> None:
    """Raise UnfamiliarTextError if the model does not know the question, or most of the texts."""
    if not tokenizer.knows(query):
        what = "this question"
    else:
        first = texts[:_LOOKED_AT]
        enough = ceil((1 - _MOST) * len(first))
        known = (text for text in first if tokenizer.knows(text))
        # No further than needed: every caller waits for it.
        if sum(1 for _ in islice(known, enough)) == enough:
            return
        what = "these texts"
    raise UnfamiliarTextError(
        f"{model} was not made for the language of {what}, so it left the order as it was. "
        'Use a multilingual model: docs/models.md, "Other languages".'
    )
