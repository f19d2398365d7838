"""Nothing that a document, an id or a file name holds acts on the terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from resift.cli.main import main
from resift.cli.terminal import PALETTE, STYLE_MARK, Progress, escape_controls, escape_in_json, out, wrap, write
from tests.cli.test_every_command import on_a_terminal

HOSTILE = "a\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\r\x08\u202e\u2066\u200f\u2028\x00\U000e0041\ufeffz"
ACTIVE = "\x1b\x07\x9b\x08\u202e\u2066\u200f\u2028\x00\U000e0041\ufeff"


def test_active_characters_are_shown_as_escapes():
    shown = escape_controls(HOSTILE)
    assert not set(shown) & set(ACTIVE + "\r")
    assert shown.startswith(r"a\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\r\x08\u202e")
    family = "नमस्ते می‌خواهم 👨‍👩‍👧 שלום\tok\n"
    assert escape_controls(family) == family, "joiners and letters of every script stay"


def test_only_our_own_styles_become_escape_sequences():
    out = io.StringIO()
    out.isatty = lambda: True
    write(f"{STYLE_MARK}[31mred{STYLE_MARK}[0m \x1b[32mnot green", out)
    assert out.getvalue() == "\x1b[31mred\x1b[0m \\x1b[32mnot green\n"


def test_json_for_a_terminal_keeps_its_value():
    data = json.dumps({"id": HOSTILE}, ensure_ascii=False)
    assert json.loads(escape_in_json(data)) == {"id": HOSTILE}
    assert not set(escape_in_json(data)) & set(ACTIVE)


@pytest.mark.parametrize("options", [[], ["--json"], ["--compare"]])
def test_documents_ids_and_file_names_do_not_reach_the_terminal_raw(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"id": HOSTILE, "text": f"text {HOSTILE}", "title": HOSTILE}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "\x1b[31mname\u202e.jsonl").write_text(json.dumps(row) + "\n")
    code, out = on_a_terminal(
        "fuse", "a.jsonl", "\x1b[31mname\u202e.jsonl", *options, columns=100, color=False, monkeypatch=monkeypatch
    )
    assert code == 0
    assert not set(out.replace("\r\n", "\n")) & set(ACTIVE + "\r")


def test_an_error_about_a_hostile_name_is_harmless(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fuse", "missing\x1b[2J\u202e.jsonl"]) == 1
    err = capsys.readouterr().err
    assert not set(err) & set(ACTIVE)


@pytest.mark.parametrize("name", ["x\n2 Q0 forged 1 9.0 run", "two words", "tab\tid", "esc\x1b[2J"])
def test_an_id_cannot_forge_lines_of_a_trec_run(name, tmp_path, capsys):
    source = tmp_path / "a.jsonl"
    source.write_text(json.dumps({"id": name}) + "\n" + json.dumps({"id": "b"}) + "\n")
    assert main(["fuse", str(source), "--trec"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "--json" in err


def test_a_table_that_is_too_wide_continues_below_and_clips_no_number(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a long name of a pipeline", *(f"{i}.1234567" for i in range(6))]]
    out.table(["pipeline", *(f"measure {i}" for i in range(6))], rows, stretch=0)
    shown = capsys.readouterr().out
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert all(f"{i}.1234567" in shown for i in range(6))
    assert shown.count("a long name") == shown.count("pipeline ") == 3


def test_text_that_leaves_no_room_gets_its_own_lines(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    text = "the head of the unit signs"
    out.table(["#", "id", "ranks", "text"], [[1, "x" * 12, "words:1 vectors:2", text]])
    assert f"1  {text}" in [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    out.table(["n", "x"], [[1, 2]])
    assert capsys.readouterr().out.splitlines()[-1].rstrip() == "1  2"


def test_a_number_stays_with_its_unit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert wrap("231 passages were all indexed in just 5.7 s, and more").splitlines() == [
        "231 passages were all indexed in just",
        "5.7 s, and more",
    ]


def test_the_time_left_does_not_count_work_of_an_earlier_run(monkeypatch):
    """After resuming at 900 of 1000 with ten per second, nine seconds are left."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    now = iter(range(100, 200))
    with Progress("rows", clock=lambda: float(next(now))) as progress:
        progress.update(900, 1000)
        assert "00:" not in screen.getvalue()
        progress.update(910, 1000)
        assert "00:09" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K") or "\x1b[?25h" in screen.getvalue()


def test_every_color_can_be_read_on_black_and_on_white():
    """Contrast of at least 3.9 to 1 with both backgrounds (WCAG's formula)."""
    levels = (0, 95, 135, 175, 215, 255)
    for name, number in PALETTE.items():
        assert 16 <= number <= 231, "a color of the cube, which themes do not redefine"
        place = number - 16
        channels = [levels[place // 36], levels[place // 6 % 6], levels[place % 6]]
        linear = [((value / 255 + 0.055) / 1.055) ** 2.4 if value else 0.0 for value in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert min((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)) >= 3.9, name
