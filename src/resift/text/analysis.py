"""Analyzer: text to index terms, and queries to the terms that find them.

How a store uses it:

    analyzer = Analyzer(language)                      # "auto", a Snowball language, or "none"
    analysis = analyzer.analyze(text)                  # per document: .terms to index, .languages to remember
    terms = analyzer.query_terms(query, languages=…)   # the union of .languages over the indexed documents

A short query does not tell its language, so `languages` says which stems the index holds: the word is looked
for under each of them. Without it the query's own language and the script's default are taken. Terms hold
no white space. A file keeps `analyzer.version`; another version means other terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from resift.text.languages import SCRIPT_DEFAULTS, detect, script_of, script_of_language, stop_words
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
        for piece in cut:
            if is_unspaced(piece):
                found += pairs(piece)
                if len(piece) > 1:
                    found += word_characters(piece)
            else:
                found.append(chosen[piece])
        return Analysis(found, languages)

    def query_terms(self, text: str, *, languages: Iterable[str] = ()) -> list[str]:
        """Return the terms to look for, without stop words unless there is nothing else.

        A word counts once for each different stem it has in `languages`.
        """
        cut = pieces(text)
        held = tuple(sorted(set(languages)))
        own = self._languages(cut, held)
        asked_in = own or {**SCRIPT_DEFAULTS, **detect(cut)}
        telling = [piece for piece in cut if not _is_stop_word(piece, asked_in)]
        return [term for piece in telling or cut for term in self._spellings(piece, own, held)]

    def _ascii(self, text: str) -> Analysis:
        cut = ascii_pieces(text)
        language = self._languages(cut).get("latin", "none")
        return Analysis(list(map(terms_in(language).__getitem__, cut)), frozenset([language] if cut else []))

    def _languages(self, cut: list[str], among: tuple[str, ...] = ()) -> dict[str, str]:
        """Return script -> language for the words of a text."""
        if self.language == "auto":
            return {**SCRIPT_DEFAULTS, **detect(cut, among)}
        return {} if self.language == "none" else {script_of_language(self.language): self.language}

    def _spellings(self, piece: str, own: dict[str, str], held: tuple[str, ...]) -> list[str]:
        if is_unspaced(piece):
            return pairs(piece)
        script = script_of(piece)
        if self.language != "auto":
            return [terms_in(own.get(script, "none"))[piece]]
        alike = [language for language in held if script_of_language(language) == script]
        names = alike or [own[script], SCRIPT_DEFAULTS[script]]
        return list(dict.fromkeys(terms_in(name)[piece] for name in names))


def _is_stop_word(piece: str, languages: dict[str, str]) -> bool:
    return piece in stop_words(languages.get(script_of(piece), "none"))
