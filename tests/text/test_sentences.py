"""Sentence boundaries: wrapped lines join, headings, lists, tables, code and verse do not."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from resift.text.tokenization import sentence_spans, sentences


def test_abbreviations_quotes_and_other_scripts():
    """Initials and abbreviations do not end a sentence; full-width stops do."""
    assert sentences("Dr. A. Smith went to St. Kilda. He saw 3.5 birds! “Why?” asked one.") == [
        "Dr. A. Smith went to St. Kilda.",
        "He saw 3.5 birds!",
        "“Why?” asked one.",
    ]
    assert sentences("灯台は光る。船は進む。") == ["灯台は光る。", "船は進む。"]
    assert sentences("") == []


def test_sentences_of_queries_may_start_in_lowercase():
    """People type queries without capitals; in documents a small letter goes on with the sentence."""
    text = "the printer is broken. who repairs it, e.g. on Sundays?"
    spans = sentence_spans(text, lowercase_starts=True)
    assert [text[start:end] for start, end in spans] == ["the printer is broken.", "who repairs it, e.g. on Sundays?"]
    assert len(sentence_spans(text)) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Bikes must be locked at the rack next to the gate,\nor they are removed on Fridays.\n",
            ["Bikes must be locked at the rack next to the gate, or they are removed on Fridays."],
        ),
        (
            "The tower on the rocks was designed and built by John\nSmeaton in 1759. It stood for "
            "well over a hundred\nyears.",
            [
                "The tower on the rocks was designed and built by John Smeaton in 1759.",
                "It stood for well over a hundred years.",
            ],
        ),
        (
            "- Return the key to the front desk before you leave\n  the building.\n- Lock all the doors.\n",
            ["Return the key to the front desk before you leave the building.", "Lock all the doors."],
        ),
        (
            "> Nobody may enter the vault alone, not even the\n> director herself.\n",
            ["Nobody may enter the vault alone, not even the director herself."],
        ),
        (
            "Die Bibliothek öffnet jeden Morgen um neun Uhr, außer an den gesetzlichen\n"
            "Feiertagen. Am Samstag schließt sie schon um zwei Uhr am Nachmittag, weil das\n"
            "Personal dann frei hat.",
            [
                "Die Bibliothek öffnet jeden Morgen um neun Uhr, außer an den gesetzlichen Feiertagen.",
                "Am Samstag schließt sie schon um zwei Uhr am Nachmittag, weil das Personal dann frei hat.",
            ],
        ),
        (
            "Windows line ends do not hide that this sentence goes\r\non in the next line.\r\n",
            ["Windows line ends do not hide that this sentence goes on in the next line."],
        ),
        (
            "この灯台は百五十年前に建てられ、今もまだ\n使われている。",
            ["この灯台は百五十年前に建てられ、今もまだ使われている。"],
        ),
        (
            "The old name for it was a light-\nhouse, in two words.",
            ["The old name for it was a light-house, in two words."],
        ),
    ],
)
def test_wrapped_lines_are_one_sentence(text, expected):
    """A line that ends because the next word did not fit goes on in the next line."""
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "# Rules for bikes\nAll bikes must be locked.",
        "Opening hours of the museum\n===========================\nIt opens at nine.",
        "- apples from the garden\n- pears from the shop\n* plums from a friend",
        "1. Open the lid slowly\n2. Pour the water in\n(a) close it",
        "| lamp | 12 volts |\n| pump | 24 volts |",
        "lamp\t12 volts\npump\t24 volts",
        "```\nfor item in basket:\n    total = total + item\nreturn the total\n```",
        "Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye,\n"
        "Could frame thy fearful symmetry?",
        "Mrs Jane Miller\n12 Harbour Street\nPort Ellen",
        "so much depends\nupon\na red wheel\nbarrow glazed",
        "The first line ends hard  \nand the second is its own.",
        "Name: Ada Brown\nOccupation: keeper of the light at the northern pier",
    ],
)
def test_other_lines_stay_apart(text):
    """Headings, items, rows, code, verse, addresses and hard breaks are not joined with the next line."""
    assert not any("\n" in text[start:end] for start, end in sentence_spans(text))


def test_spans_cover_every_word():
    """No character but white space is outside all spans, and spans do not overlap."""
    text = "# A\n\nOne two. Three!\n- four\n  five 。六。\n```\nx = 1\n```\n> seven"
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans).split() != []
    inside = {place for a, b in spans for place in range(a, b)}
    assert all(char.isspace() for place, char in enumerate(text) if place not in inside)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


@pytest.mark.parametrize("part", ["a. ", "A. ", "- ", "| ", "> ", "\n", "word\n", "。", "- - ", "*** ", "\t"])
def test_time_is_linear(part):
    """Hostile repetition costs about ten times as much for ten times the text."""
    started = time.process_time()
    sentence_spans(part * 50_000)
    assert time.process_time() - started < 5


def test_narrow_lines_of_prose_are_joined():
    """A line of prose that starts in lowercase continues a sentence; lists of short items stay apart."""
    text = "Bees make honey\nin wax combs. They\nlive in hives."
    assert sentences(text) == ["Bees make honey in wax combs.", "They live in hives."]
    assert sentences("fresh milk\neggs and bread\nplain soap") == ["fresh milk", "eggs and bread", "plain soap"]
