"""Text, SVG and page: what they show, that they fit, and that no text breaks out of them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from resift.errors import InputError
from resift.ranking.fusion import fuse
from resift.text.snippets import clip, clip_phrase, display_width, short_id
from tests.explain.rankings import HOSTILE, fused_and_reranked, hostile, reranked

SVG = "{http://www.w3.org/2000/svg}"

VOID = {"meta", "link", "br", "img"}


class Tags(HTMLParser):
    """Collects tags and checks that they close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID and not (self.open and self.open[-1] == tag and self.open.pop()):
            raise AssertionError(f"</{tag}> closes {self.open[-1:]}")

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser.seen


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_text_fits_the_terminal(width):
    for ranking in (fused_and_reranked(), hostile()):
        lines = ranking.explain().text(width=width).splitlines()
        assert lines
        assert max(map(len, lines)) <= max(width, 40)
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", "".join(lines))


def test_text_shows_ranks_curves_and_reasons():
    told = fused_and_reranked().explain().text(width=80)
    heads, first = told.splitlines()[:2]
    assert heads.split() == ["text", "+", "vectors", "rrf", "rerank"]
    assert first.startswith("   1 +       1    1 ")
    assert first.endswith(" f")
    assert re.search("[\u2801-\u28ff]{3}", first)
    assert "▲4 f  moved up from 5th to 1st by rerank: wise 9" in told
    assert "✕  a  left out: k=3" in told


def test_paint_gets_every_colored_part():
    styles = set()

    def paint(text: str, style: str) -> str:
        styles.add(style)
        return text

    explanation = fused_and_reranked().explain()
    assert explanation.text(paint=paint) == explanation.text()
    assert {"bold", "cyan", "green", "dim"} <= styles


def test_parallel_lists_join_at_the_fusion():
    """Each curve from a list ends where the fused column has the hit; none leads from list to list."""
    root = ET.fromstring(fused_and_reranked().explain().svg())
    columns = {node.get("cx") for node in root.iter(f"{SVG}circle")}
    left, fused, last = sorted(columns, key=float)
    starts = [re.findall(r"-?[\d.]+", node.get("d")) for node in root.iter(f"{SVG}path")]
    assert {(one[0], one[-2]) for one in starts} == {(left, fused), (fused, last)}
    assert len([one for one in starts if one[0] == left]) == 9  # five hits of text, four of vectors
    list_ranks = [node.get("cy") for node in root.iter(f"{SVG}circle") if node.get("cx") == left]
    assert len(set(list_ranks)) == len(list_ranks) == 9
    assert "text 1, vectors 1, rrf 1, rerank 6" in fused_and_reranked().explain().svg()


def test_a_single_list_is_a_column():
    ranking = reranked(fuse({"input": [{"id": id, "worth": worth} for id, worth in (("a", 1.0), ("b", 2.0))]}), k=2)
    assert ranking.explain().text(width=80).splitlines()[0].split()[0] == "input"
    assert "+" not in ranking.explain().text(width=80).splitlines()[0]


def test_the_query_is_the_title_of_the_svg():
    root = ET.fromstring(fused_and_reranked().explain(query="who <rises>?").svg())
    assert root.find(f"{SVG}title").text == "who <rises>?"
    assert root.get("aria-label").startswith("who <rises>?: Rank flow")
    assert ":root" not in fused_and_reranked().explain().svg(), "a notebook keeps its own colors"


def test_a_closed_card_highlights_the_query_words():
    page = fused_and_reranked().explain(query="text of f").html()
    assert '<span class="text"><bdi><mark>text</mark> of <mark>f</mark></bdi></span>' in page


@pytest.mark.parametrize(
    ("id", "most", "shown"),
    [
        ("handbook/rooms/library.md#ab1c178bc6e6", 38, "handbook/rooms/library.md#ab1c178bc6e6"),
        ("handbook/rooms/library.md#ab1c178bc6e6", 30, "handbook/rooms/library.md#ab1c"),
        ("handbook/rooms/library.md#ab1c178bc6e6", 24, "…/rooms/library.md#ab1c"),
        ("handbook/rooms/library.md#ab1c178bc6e6", 18, "…/library.md#ab1c"),
        ("a-name-without-folders-that-is-long-7", 20, "a-name-wit…is-long-7"),
        ("規則/図書館の本は四週間.txt#7fe46edd3d1e", 28, "…/図書館の本は四週….txt#7fe4"),
    ],
)
def test_shortened_ids_stay_readable(id, most, shown):
    assert short_id(id, most) == shown
    assert display_width(shown) <= most


def test_clipped_reasons_end_after_a_phrase():
    assert clip("図書館の本", 7) == "図書館…"
    assert clip("e\u0301cole normale", 6) == "e\u0301cole…"
    reason = "blend lifted it from 4th to 3rd: first stage 0.1303 + cross-encoder 4.35e-07"
    assert clip_phrase(reason, 60) == "blend lifted it from 4th to 3rd: first stage 0.1303 …"
    assert clip_phrase(reason, 40) == "blend lifted it from 4th to 3rd …"
    assert clip_phrase(reason, 20) == "blend lifted it …"
    assert clip_phrase(reason, len(reason)) == reason


def test_svg_is_well_formed_and_names_every_line():
    root = ET.fromstring(fused_and_reranked().explain().svg())
    groups = [node for node in root.iter() if node.get("data-hit")]
    assert len(groups) == 6
    assert all(node.get("tabindex") == "0" and node.get("aria-label") for node in groups)


def test_the_page_is_complete_and_loads_nothing():
    """One file, no address but anchors, a policy that forbids loading, every hit with details."""
    page = fused_and_reranked().explain(query="who rises?").html()
    seen = tags(page)
    assert not [attrs for _, attrs in seen if any(key in attrs for key in ("src", "srcset", "action"))]
    links = [attrs["href"] for tag, attrs in seen if "href" in attrs]
    assert all(link.startswith(("#hit-", "data:")) for link in links)
    assert "default-src 'none'" in page
    assert "url(" not in page
    assert "who rises?" in page
    assert "moved up from 5th to 1st by rerank: wise 9" in page
    assert "Left out (3)" in page
    assert {f"#hit-{n}" for n in range(1, 7)} <= set(links)
    assert {attrs.get("id") for tag, attrs in seen if tag == "details"} == {f"hit-{n}" for n in range(1, 7)}


def test_hostile_texts_are_escaped():
    """Ids, texts, sources, notes and the query cannot open a tag or close the script."""
    page = hostile().explain(query=HOSTILE[0]).html()
    assert [tag for tag, _ in tags(page)].count("script") == 1
    assert "img" not in {tag for tag, _ in tags(page)}
    assert not [attrs for _, attrs in tags(page) if any(key.startswith("on") for key in attrs)]
    ET.fromstring(hostile().explain().svg())
    page.encode("utf-8")


def test_save_chooses_the_format_by_suffix(tmp_path):
    explanation = fused_and_reranked().explain()
    assert explanation.save(tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert explanation.save(str(tmp_path / "a.svg")).read_text().startswith("<svg")
    assert "▲4" in explanation.save(tmp_path / "a.txt").read_text()
    with pytest.raises(InputError, match=r"\.html, \.svg or \.txt"):
        explanation.save(tmp_path / "a.pdf")
    with pytest.raises(OSError, match="No such file"):
        explanation.save(tmp_path / "none" / "a.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.svg", "a.txt"]
