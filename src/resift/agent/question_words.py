"""The words of a question: how many of them a text has, and which of them are names."""

from __future__ import annotations

import re

from resift.text import words
from resift.text.plurals import variants

_CAPITAL = re.compile(r"(?<=[\w,;:'’)\"”] )[^\W\d_a-z][\w'’-]+")

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


def names_in(question: str) -> list[str]:
    """Return the words that are written like names: capital letters inside a sentence of small ones."""
    found = [word.partition("'")[0].partition("’")[0] for word in _CAPITAL.findall(question)]
    return found if len(found) * 2 <= len(question.split()) else []


def missing_from(names: list[str], present: set[str] | frozenset[str]) -> list[str]:
    """Return the names of which no word is among the words that are there."""
    return [
        name for name in names if not any(form in present for word in words(name) for form in variants(word))
    ]
