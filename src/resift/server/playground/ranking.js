// One ranking: the rank flow, and a card per hit that explains its rank when opened.
import { make, picture } from "./dom.js";

export function ranking(data, name) {
  const box = make("section", { className: "ranking", "aria-label": name ? `Setting ${name.toUpperCase()}` : "Hits" });
  if (name) box.append(make("h2", {}, make("span", { className: `badge ${name}` }, name.toUpperCase())));
  if (data.degraded) box.append(make("p", { className: "panel warn" }, data.reason || "degraded"));
  const cards = data.hits.map((hit, index) => card(hit, index, data));
  if (data.flow && data.flow.wide) box.append(flow(data.flow, cards));
  box.append(...(cards.length ? cards : [make("p", { className: "dim" }, "Nothing found.")]));
  return box;
}

function flow(pictures, cards) {
  const panel = make("div", { className: "panel picture" }, picture(pictures.wide), picture(pictures.narrow));
  panel.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    const number = Number((link.getAttribute("href") || "").replace(/\D/g, ""));
    const target = cards[number - 1];
    if (target) { target.open = true; target.querySelector("summary").focus(); }
  });
  return panel;
}

function card(hit, index, data) {
  const score = typeof hit.relevance === "number" ? hit.relevance.toFixed(2) : "–";
  const raw = typeof hit.score === "number" ? `raw score ${hit.score.toPrecision(4)}` : "no raw score";
  return make("details", { className: "result" },
    make("summary", {},
      make("span", { className: "place" }, String(index + 1)),
      make("span", { className: "what" },
        make("bdi", { className: "text" }, hit.text),
        make("bdi", { className: "id" }, `${hit.id} · ${hit.source || ""}`)),
      make("span", { className: "number", title: raw }, score)),
    make("p", { className: "why dim" }, (data.why && data.why[hit.id]) || ""));
}
