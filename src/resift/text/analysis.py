"""Analyzer: text to index terms, and queries to the terms that find them.

How a store uses it:

    analyzer = Analyzer(language)                      # "auto", a Snowball language, or "none"
    analysis = analyzer.analyze(text)                  # per document: .terms to index, .languages to remember
    words = analyzer.query_words(query, languages=…)   # the union of .languages over the indexed documents

A short query does not tell its language, so `languages` says which stems the index holds: each word is looked
for under each of them. Without it the query's own language and the script's default are taken. `query_terms`
is the same as one list, for engines that rank by themselves. Terms hold no white space. A file keeps
`analyzer.version`; another version means other terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from resift.text.languages import SCRIPT_DEFAULTS, Detected, detect, script_of, script_of_language, stop_words
from resift.text.stemming import check_language, stemmer_version, terms_by_script, terms_in
from resift.text.tokenization import FIRST_UNSPACED, ascii_pieces, is_unspaced, pairs, pieces, word_characters

_FORMAT = 1  # raise it when the same text gives other terms


class Analysis(NamedTuple):
    """The index terms of a text in order, and the languages whose stems they are."""

    terms: list[str]
    languages: frozenset[str]


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Cuts and folds words of any script and stems them by language; the same for documents and queries.

    `language` is "auto" (per text: its scripts, then its small words; English where nothing tells), a
    Snowball language for all texts, or "none" for no stems.
    """

    language: str = "auto"

    def __post_init__(self) -> None:
        check_language(self.language)

    @property
    def version(self) -> str:
        """What an index keeps to notice that its terms were made by another analysis."""
        stems = "" if self.language == "none" else f" snowball {stemmer_version()}"
        return f"{_FORMAT} {self.language}{stems}"

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a text in order."""
        return self.analyze(text).terms

    def analyze(self, text: str) -> Analysis:
        """Return the index terms of a text and the languages whose stems they are."""
        if text.isascii():
            return self._ascii(text)
        cut = pieces(text)
        chosen = terms_by_script(tuple(self._languages(cut).items()))
        languages = frozenset(chosen.language_of(letter) for letter in {piece[0] for piece in cut})
        if not cut or max(cut) < FIRST_UNSPACED:  # strings compare by their first character
            return Analysis(list(map(chosen.__getitem__, cut)), languages)
        found: list[str] = []
        single: dict[str, None] = {}
        for piece in cut:
            if is_unspaced(piece):
                found += pairs(piece)
                if len(piece) > 1:
                    single.update(dict.fromkeys(word_characters(piece)))
            else:
                found.append(chosen[piece])
        # Once each: how often a character stands in a text says little, and an index of each time is large.
        return Analysis([*found, *single], languages)

    def query_terms(self, text: str, *, languages: Iterable[str] = ()) -> list[str]:
        """Return the terms to look for, without stop words unless there is nothing else."""
        return [term for spellings in self.query_words(text, languages=languages) for term in spellings]

    def query_words(self, text: str, *, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """Return the query word by word, each as the different terms that `languages` make of it.

        A ranking that can should count the terms of one word as one: their occurrences together, and the
        documents that hold any of them. A stem that only a few documents have must not look rare and telling.
        """
        cut = pieces(text)
        held = tuple(sorted(set(languages)))
        named = () if self.language in ("auto", "none") else (self.language,)
        detected = detect(cut, named or held)
        spoken = {**SCRIPT_DEFAULTS, **{script: found.language for script, found in detected.items()}}
        telling = [piece for piece in cut if piece not in stop_words(spoken[script_of(piece)])]
        found: list[tuple[str, ...]] = []
        for piece in telling or cut:
            if is_unspaced(piece):
                found += [(pair,) for pair in pairs(piece)]
            else:
                stems = self._query_languages(script_of(piece), detected, held)
                found.append(tuple(dict.fromkeys(terms_in(name)[piece] for name in stems)))
        return found

    def _ascii(self, text: str) -> Analysis:
        cut = ascii_pieces(text)
        language = self._languages(cut).get("latin", "none")
        return Analysis(list(map(terms_in(language).__getitem__, cut)), frozenset([language] if cut else []))

    def _languages(self, cut: list[str]) -> dict[str, str]:
        """Return script -> language for the words of a text."""
        if self.language == "auto":
            return {**SCRIPT_DEFAULTS, **{script: one.language for script, one in detect(cut).items()}}
        return {} if self.language == "none" else {script_of_language(self.language): self.language}

    def _query_languages(
        self, script: str, detected: dict[str, Detected], held: tuple[str, ...]
    ) -> list[str]:
        """Return the languages whose stems a query's words of this script take."""
        if self.language != "auto":
            return [self._languages([]).get(script, "none")]
        default = SCRIPT_DEFAULTS[script]
        alike = [language for language in held if script_of_language(language) == script]
        own = detected.get(script)
        if own is None or not (own.sure or not alike):
            return alike or [default]
        # Texts too short to tell were indexed under the default.
        return [own.language, *([default] if default in (alike or [default]) else [])]
