"""Analyze texts into index terms, and queries into the terms that match them.

A store uses it like this:

    analyzer = Analyzer(language)                      # "auto", a Snowball language, or "none"
    analysis = analyzer.analyze(text)                  # per document: .terms to index, .languages to remember
    words = analyzer.query_words(query, languages=…)   # the union of .languages over the indexed documents

The language of a short query is often unclear, so `languages` lists the stemmers of the index, and each word
is stemmed by each of them. Without it, the detected language and the default of the script are used.
`query_terms` returns the same as one list, for engines with their own ranking. Terms contain no white space.
A store saves `analyzer.version`: terms of another version differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from resift.text.languages import SCRIPT_DEFAULTS, Detected, detect, script_of, script_of_language, stop_words
from resift.text.stemming import check_language, stemmer_version, terms_by_script, terms_in
from resift.text.tokenization import FIRST_UNSPACED, ascii_pieces, is_unspaced, pairs, pieces, word_characters

_FORMAT = 1  # raise it when the terms of a text change


class Analysis(NamedTuple):
    """The index terms of a text in order, and the languages by which they were stemmed."""

    terms: list[str]
    languages: frozenset[str]


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Splits, folds and stems words of any script; the same for documents and queries.

    `language` is "auto" (detected per text, by default English), a Snowball language for all texts, or "none"
    for no stemming.
    """

    language: str = "auto"

    def __post_init__(self) -> None:
        check_language(self.language)

    @property
    def version(self) -> str:
        """The version of the terms, which an index saves to detect changes."""
        stems = "" if self.language == "none" else f" snowball {stemmer_version()}"
        return f"{_FORMAT} {self.language}{stems}"

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a text in order."""
        return self.analyze(text).terms

    def analyze(self, text: str) -> Analysis:
        """Return the index terms of a text and the languages by which they were stemmed."""
        if text.isascii():
            return self._ascii(text)
        cut = pieces(text)
        chosen = terms_by_script(tuple(self._languages(cut).items()))
        languages = frozenset(chosen.language_of(letter) for letter in {piece[0] for piece in cut})
        if not cut or max(cut) < FIRST_UNSPACED:  # strings compare by their first character
            return Analysis(list(map(chosen.__getitem__, cut)), languages)
        terms: list[str] = []
        single: dict[str, None] = {}
        for piece in cut:
            if is_unspaced(piece):
                terms += pairs(piece)
                if len(piece) > 1:
                    single.update(dict.fromkeys(word_characters(piece)))
            else:
                terms.append(chosen[piece])
        # Single characters once each: their frequency says little, and would make the index large.
        return Analysis([*terms, *single], languages)

    def query_terms(self, text: str, *, languages: Iterable[str] = ()) -> list[str]:
        """Return the terms to search, without stop words unless there are no other words."""
        return [term for spellings in self.query_words(text, languages=languages) for term in spellings]

    def query_words(self, text: str, *, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """Return the words of the query, each as the different terms that `languages` make of it.

        A ranking should count the terms of one word as one term: the sum of their occurrences, and the
        documents with any of them. Otherwise a stem of a rare language looks like a rare word.
        """
        cut = pieces(text)
        indexed = tuple(sorted(set(languages)))
        named = () if self.language in ("auto", "none") else (self.language,)
        detected = detect(cut, named or indexed)
        by_script = {**SCRIPT_DEFAULTS, **{script: result.language for script, result in detected.items()}}
        content_words = [piece for piece in cut if piece not in stop_words(by_script[script_of(piece)])]
        query_words: list[tuple[str, ...]] = []
        for piece in content_words or cut:
            if is_unspaced(piece):
                query_words += [(pair,) for pair in pairs(piece)]
            else:
                stems = self._query_languages(script_of(piece), detected, indexed)
                query_words.append(tuple(dict.fromkeys(terms_in(name)[piece] for name in stems)))
        return query_words

    def _ascii(self, text: str) -> Analysis:
        cut = ascii_pieces(text)
        language = self._languages(cut).get("latin", "none")
        return Analysis(list(map(terms_in(language).__getitem__, cut)), frozenset([language] if cut else []))

    def _languages(self, cut: list[str]) -> dict[str, str]:
        """Return script -> language for the words of a text."""
        if self.language == "auto":
            return {**SCRIPT_DEFAULTS, **{script: result.language for script, result in detect(cut).items()}}
        return {} if self.language == "none" else {script_of_language(self.language): self.language}

    def _query_languages(
        self, script: str, detected: dict[str, Detected], indexed: tuple[str, ...]
    ) -> list[str]:
        """Return the languages by which the query's words of this script are stemmed."""
        if self.language != "auto":
            return [self._languages([]).get(script, "none")]
        default = SCRIPT_DEFAULTS[script]
        same_script = [language for language in indexed if script_of_language(language) == script]
        own = detected.get(script)
        if own is None or not (own.sure or not same_script):
            return same_script or [default]
        # Texts too short for detection were indexed under the default.
        return [own.language, *([default] if default in (same_script or [default]) else [])]
