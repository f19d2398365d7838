"""Looks and behaviour of picture and page: one style sheet, a few lines of script, nothing from elsewhere."""

# ruff: noqa: E501 - markup reads better on one line

from __future__ import annotations

_COLOURS = """
SCOPE { color-scheme: light dark; --bg: #fbfaf8; --card: #fff; --fg: #22262b; --dim: #667079; --line: #e4e1db;
  --rose: #12805c; --fell: #c2413a; --stayed: #3c6e9f; --cut: #8d949c; --on: #fff; --shade: rgba(30,30,30,.06); }
@media (prefers-color-scheme: dark) { SCOPE { --bg: #14171b; --card: #1b1f25; --fg: #e8ebee; --dim: #a1abb5;
  --line: #2e353d; --rose: #46c394; --fell: #ff857b; --stayed: #7db4ea; --cut: #7b858f; --on: #101316; --shade: rgba(0,0,0,.3); } }
"""

_PICTURE = """
svg.flow { display: block; font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
.flow text { fill: var(--fg); font-size: 13px; }
.flow .stage { font-weight: 650; } .flow .asked { font-size: 16px; font-weight: 650; } .flow .list { paint-order: stroke; stroke: var(--card); stroke-width: 5px; stroke-linejoin: round; }
.flow .by, .flow .snippet { fill: var(--dim); font-size: 12px; }
.flow .guide { stroke: var(--line); stroke-width: 1; stroke-dasharray: 1 5; stroke-linecap: round; }
.flow .hit { outline: none; cursor: pointer; --c: var(--stayed); }
.flow .rose { --c: var(--rose); } .flow .fell { --c: var(--fell); } .flow .cut { --c: var(--cut); }
.flow path { fill: none; stroke: var(--c); stroke-width: 2.5; opacity: .62; transition: opacity .12s, stroke-width .12s; }
.flow path.unknown { stroke-dasharray: 2 6; opacity: .45; stroke-linecap: round; } .flow .cut path { opacity: .35; }
.flow .node { fill: var(--card); stroke: var(--c); stroke-width: 2; } .flow .node.end { fill: var(--c); }
.flow circle.unknown { fill: var(--card); stroke: var(--c); stroke-dasharray: 2 2; }
.flow .rank { font-size: 11.5px; font-weight: 600; fill: var(--c); font-variant-numeric: tabular-nums; }
.flow .rank.end { fill: var(--on); } .flow .rank.small { font-size: 9.5px; } .flow .node.small { stroke-width: 1.5; }
.flow .name { font-weight: 600; } .flow .sign { fill: var(--c); font-weight: 700; } .flow .cut .name { fill: var(--dim); }
.flow .isolated { unicode-bidi: isolate; }
.flow:has(.hit:hover) .hit:not(:hover), .flow:has(.hit:focus-visible) .hit:not(:focus-visible),
.flow:has(.hit.on) .hit:not(.on) { opacity: .22; }
.flow .hit:hover path, .flow .hit:focus-visible path, .flow .hit.on path { opacity: 1; stroke-width: 4; }
.flow .hit:focus-visible .node { stroke-width: 4; }
"""

FLOW_STYLE = _PICTURE
"""The picture alone, for pages with colours of their own."""

_PAGE_COLOURS = _COLOURS.replace("SCOPE", ":root")

PICTURE_STYLE = _PAGE_COLOURS + ".flow { background: var(--bg); }" + _PICTURE
"""For pages around the picture, which share its colours."""

ALONE_STYLE = (
    _COLOURS.replace("SCOPE", ".flow")
    + ".flow { background: var(--bg); } svg.flow { max-width: 100%; height: auto; }"
    + _PICTURE
)
"""For a picture alone, which keeps its colours to itself: in a notebook it stands among others."""

STYLE = (
    _PAGE_COLOURS
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1160px; padding: 28px 20px 56px; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 1.12rem; margin: 34px 0 10px; } p { margin: 4px 0 10px; } bdi { overflow-wrap: anywhere; }
.dim { color: var(--dim); } .small { font-size: .87rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 14px 16px; box-shadow: 0 1px 3px var(--shade); }
.picture { margin-top: 16px; overflow-x: auto; } svg.flow.wide { max-width: 100%; height: auto; } svg.flow.narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 2px 0; color: var(--dim); font-size: .87rem; }
.legend b { font-weight: 700; } .rose b, .chip.rose { color: var(--rose); } .fell b, .chip.fell { color: var(--fell); }
.stayed b, .chip.stayed { color: var(--stayed); } .cut b, .chip.cut { color: var(--cut); }
.warn { border-left: 4px solid var(--fell); margin: 14px 0; }
.times { display: block; width: 100%; margin-top: 12px; height: 8px; border-radius: 5px; overflow: hidden; }
.times rect { fill: var(--stayed); stroke: var(--bg); stroke-width: 1; } .times rect:nth-child(2n) { fill: var(--rose); }
.times rect:nth-child(3n) { fill: var(--cut); }
details.hit { padding: 0; margin: 0 0 8px; scroll-margin-top: 12px; } details.hit > div { padding: 4px 16px 14px 58px; }
details.hit.on, details.hit:target { border-color: var(--stayed); }
summary { display: flex; align-items: baseline; gap: 12px; padding: 10px 16px; cursor: pointer; border-radius: 14px; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary:focus-visible { outline: 3px solid var(--stayed); outline-offset: -2px; }
summary .place { font-weight: 700; font-variant-numeric: tabular-nums; min-width: 30px; text-align: right; font-size: 1.05rem; }
summary .chip { font-weight: 700; min-width: 40px; font-variant-numeric: tabular-nums; } summary .what { flex: 1; min-width: 0; }
summary .id { font-weight: 650; } summary .what > span { display: block; } summary .text { font-size: .93rem; } details[open] .text { display: none; }
mark { background: none; color: inherit; font-weight: 650; }
summary::after { content: "+"; color: var(--dim); font-weight: 700; } details[open] > summary::after { content: "–"; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 600; font-size: .82rem; } th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; } tr.part td { color: var(--dim); border-bottom-style: dotted; }
.bar { display: inline-block; width: 120px; height: 10px; vertical-align: middle; background: var(--line); border-radius: 5px; overflow: hidden; }
.bar rect { fill: var(--rose); } .bar rect.minus { fill: var(--fell); } .bar line { stroke: var(--dim); }
footer { margin-top: 36px; }
@media (max-width: 760px) { body { padding: 18px 12px 40px; } .picture { padding: 12px 3px; } svg.flow.wide { display: none; }
  svg.flow.narrow { display: block; width: 100%; height: auto; } details.hit > div { padding: 2px 12px 12px; } summary { padding: 10px 12px; gap: 9px; }
  summary .place { min-width: 20px; } summary .chip { min-width: 34px; } .bar { width: 56px; } th, td { padding-right: 8px; } }
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
"""
    + _PICTURE
)

SCRIPT = """
(function () {
  var parts = document.querySelectorAll("[data-hit]");
  function light(number) {
    parts.forEach(function (part) { part.classList.toggle("on", number !== null && part.dataset.hit === number); });
  }
  parts.forEach(function (part) {
    part.addEventListener("mouseenter", function () { light(part.dataset.hit); });
    part.addEventListener("mouseleave", function () { light(null); });
    part.addEventListener("focusin", function () { light(part.dataset.hit); });
    part.addEventListener("focusout", function () { light(null); });
  });
  function open() {
    var hit = document.getElementById(location.hash.slice(1));
    if (hit && hit.tagName === "DETAILS") { hit.open = true; hit.querySelector("summary").focus(); }
  }
  window.addEventListener("hashchange", open);
  open();
})();
"""
