// Show one ranking: a card per hit that explains its rank when opened, and panels with the rank flow and timings.
import { make, picture, svg } from "./dom.js";

const MOVES = { rose: "moved up", fell: "moved down", stayed: "kept its rank", cut: "left out" };

export function ranking(data, name) {
  const box = make("section", { className: "ranking", "aria-label": name ? `Setting ${name.toUpperCase()}` : "Hits" });
  if (name) box.append(make("h2", {}, make("span", { className: `badge ${name}` }, name.toUpperCase())));
  if (data.degraded) box.append(make("p", { className: "panel warn" }, data.reason || "degraded"));
  const cards = data.hits.map((hit, index) => card(hit, index, data));
  box.append(...(cards.length ? cards : [make("p", { className: "dim" }, "No hits.")]));
  if (name && data.flow?.narrow) box.append(flowPanel(data.flow, cards, false));
  return box;
}

function card(hit, index, data) {
  const facts = data.cards?.[index] || { title: hit.id, location: "", snippet: [[hit.text, false]], move: "", kind: "stayed", reason: "", stages: [] };
  const hasRelevance = typeof hit.relevance === "number";
  const raw = typeof hit.score === "number" ? `raw score ${hit.score.toPrecision(4)}` : "no raw score";
  // The title of an untitled hit is its first words, which the snippet already shows.
  const untitled = facts.title.endsWith("…") ? hit.text.startsWith(facts.title.slice(0, -2)) : facts.title === hit.text;
  return make("details", { className: "result" },
    make("summary", {},
      make("span", { className: "place" }, String(index + 1)),
      make("span", { className: "what" },
        untitled ? null : make("bdi", { className: "title" }, facts.title),
        facts.location ? make("bdi", { className: "where dim" }, facts.location) : null,
        make("bdi", { className: "text" }, ...facts.snippet.map(([text, match]) => (match ? make("mark", {}, text) : text))),
        facts.reason ? make("span", { className: "reason dim" },
          make("b", { className: facts.kind, title: MOVES[facts.kind] || "" }, facts.move), ` ${facts.reason}`) : null),
      make("span", { className: "number", title: raw },
        make("meter", { min: 0, max: 1, value: hasRelevance ? hit.relevance : 0, "aria-label": "relevance" }),
        make("span", {}, hasRelevance ? hit.relevance.toFixed(2) : "–"))),
    make("div", { className: "more" },
      make("bdi", { className: "full" }, hit.text),
      make("p", { className: "why dim" }, (data.why && data.why[hit.id]) || ""),
      facts.stages.length ? stageTable(facts.stages) : null,
      make("bdi", { className: "id dim" }, `id ${hit.id}`)));
}

function stageTable(stages) {
  const rows = stages.map((stage) => make("tr", {},
    make("td", {}, stage.stage), make("td", { className: "n" }, String(stage.rank)),
    make("td", { className: "n" }, stage.score === null ? "–" : Number(stage.score.toPrecision(4)).toString())));
  return make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "stage"), make("th", { className: "n" }, "rank"),
    make("th", { className: "n" }, "score"))), make("tbody", {}, ...rows));
}

export function answerPanel(data, ranked) {
  if (data === null) return make("section", { className: "panel answer dim", "aria-label": "Answer" }, "Looking for an answer…");
  const box = make("section", { className: "panel answer", "aria-label": "Answer" });
  if (data.problem) box.append(make("p", { className: "dim" }, `No answer: ${data.problem}`));
  else if (!data.found) box.append(make("p", { className: "dim" }, data.answer || "No document answers the question."));
  else {
    box.append(make("bdi", {}, data.answer));
    const titles = new Map((ranked?.cards || []).map((facts, i) => [ranked.hits[i].id, facts.title]));
    const names = data.sources.map((source, i) => `[${i + 1}] ${titles.get(source.id) || source.title || source.path || source.id}`);
    if (names.length) box.append(make("p", { className: "dim small" }, names.slice(0, 3).join("  ")));
  }
  return box;
}

// Panels with the rank flow, the model and the time per stage. They are next to the hits, or below them on a small screen.
export function searchPanel(data, choices, cards, enlarge) {
  const parts = [];
  if (data.flow?.narrow) parts.push(flowPanel(data.flow, [...cards], true, enlarge));
  const stages = Object.entries(data.timings || {}).filter(([name, ms]) => name !== "total" && ms > 0);
  if (stages.length) parts.push(timingPanel(stages, data, choices));
  return parts;
}

function flowPanel(flow, cards, open, enlarge) {
  const wide = window.matchMedia("(min-width: 1000px)").matches;
  const panel = make("details", { className: "panel picture", open: open && wide },
    make("summary", {}, "How this order was determined"), picture(flow.narrow));
  if (enlarge) panel.append(make("button", { type: "button", className: "quiet", onclick: () => enlarge(picture(flow.wide)) }, "Enlarge"));
  panel.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    const target = cards[Number((link.getAttribute("href") || "").replace(/\D/g, "")) - 1];
    if (target) { target.open = true; target.querySelector("summary").focus(); }
  });
  return panel;
}

function timingPanel(stages, data, choices) {
  const longest = Math.max(...stages.map(([, ms]) => ms));
  const rows = stages.map(([name, ms]) => make("tr", {},
    make("td", {}, name),
    make("td", {}, svg("svg", { class: "time", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: Math.max(1, (100 * ms) / longest), height: 8 }))),
    make("td", { className: "n" }, `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`)));
  return make("details", { className: "panel timing" },
    make("summary", {}, `${Math.round(data.timings.total ?? 0)} ms · ${choices.model}`),
    make("table", {}, make("tbody", {}, ...rows)));
}
