"""How much of a question's own words a text has: plain evidence beside a model's opinion."""

from __future__ import annotations

from resift.rerankers.words import variants, words

# Words that a question is made of, whatever it asks about.
_FRAME = frozenset(
    """
    a about again all also an and another any are as at be because been before between both but by came
    can come could did do does done during each end ever find first for found from gave get give given
    go good had has have he her here him his how i if in into is it its just kind known last like long
    made make many mean means more most much my name named new no not now of off on one only or other
    our out over own part people place say see she should show since so some such take tell than that
    the their them then there these they thing things this those through time to too two under up us use
    used very was way we well were what when where whether which while who whom whose why will with work
    would year years you your
    """.split()  # noqa: SIM905 - a hundred quoted words are harder to read
)


def coverage(question: str, text: str) -> float:
    """Return the share of the question's content words that the text has, in singular or plural."""
    asked = [word for word in dict.fromkeys(words(question)) if word not in _FRAME]
    if not asked:
        return 0.0
    present = set(words(text))
    return sum(any(form in present for form in variants(word)) for word in asked) / len(asked)
