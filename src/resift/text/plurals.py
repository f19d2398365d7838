"""English singular and plural spellings of a word."""

from __future__ import annotations


def variants(word: str) -> tuple[str, ...]:
    """Return the word with its English singular and plural spellings.

    Widening the few words of a query costs nothing; stemming every word of every text would.
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return (word,)
    singular = _singular(word)
    plurals = [singular + "s", singular + "es"]
    if singular.endswith("y"):
        plurals.append(singular[:-1] + "ies")
    return tuple(dict.fromkeys((word, singular, *plurals)))


def _singular(word: str) -> str:
    """Strip a plural ending (the rules of Harman's S stemmer, 1991)."""
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word
