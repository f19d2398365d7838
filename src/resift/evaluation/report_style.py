"""Looks and behaviour of the report: one style sheet, a few lines of script, nothing from elsewhere."""

from __future__ import annotations

from resift.explain.style import FLOW_STYLE

STYLE = (
    FLOW_STYLE
    + """
:root { color-scheme: light dark; --bg: #fff; --fg: #1b1f24; --dim: #5b6570; --line: #d9dee3; --card: #f6f8fa;
  --gain: #1a7f4b; --loss: #c4392f; --accent: #0b62c4; --other: #9aa5b1; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181d; --fg: #e6eaee; --dim: #a3adb8; --line: #343c45;
  --card: #1c2127; --gain: #4cc38a; --loss: #ff8079; --accent: #6cb2ff; --other: #6b7681; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 20px 16px 48px; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 4px; } h2 { font-size: 1.2rem; margin: 32px 0 8px; }
h3 { font-size: 1rem; margin: 20px 0 4px; }
p { margin: 4px 0 10px; } .dim { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 700; color: var(--gain); }
svg { display: block; } svg.wide { max-width: 100%; height: auto; } svg.narrow { display: none; }
 svg text { fill: var(--fg); font: 13px system-ui, sans-serif; }
svg text.tick { fill: var(--dim); font-size: 12px; } svg text.name { font-weight: 600; }
.grid { stroke: var(--line); } .axis { stroke: var(--dim); }
.gain { fill: var(--gain); } .loss { fill: var(--loss); }
.error { stroke: var(--accent); stroke-width: 2; opacity: .55; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 10px 0 0;
  font-size: .9rem; }
.facts dt { color: var(--dim); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.dot { fill: var(--accent); stroke: var(--bg); stroke-width: 2; }
.flows { display: flex; flex-wrap: wrap; gap: 8px 24px; } .flows > div { min-width: 0; max-width: 100%; }
select { font: inherit; padding: 6px 8px; max-width: 100%; background: var(--card); color: var(--fg);
  border: 1px solid var(--line); border-radius: 6px; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px;
  margin: 8px 0; }
summary { cursor: pointer; }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 6px; background: var(--accent); }
@media (max-width: 700px) { svg.wide { display: none; } svg.narrow { display: block; }
  th, td { padding: 6px 8px; } }
.flow .hit { --c: var(--other); --on: var(--bg); } .flow .hit.marked { --c: var(--accent); }
"""
)

SCRIPT = """
document.querySelectorAll("select[data-shows]").forEach(function (select) {
  var parts = document.querySelectorAll("[data-part=" + select.dataset.shows + "]");
  function show() {
    parts.forEach(function (part) { part.hidden = part.dataset.name !== select.value; });
  }
  select.hidden = false;
  select.addEventListener("change", show);
  show();
});
"""
