// The switches of one setting: fusion, reranker, depth, blend. What is left alone is up to the server.
import { make } from "./dom.js";

export class Settings {
  constructor(name, facts) {
    this.fusion = chooser(facts.fusions, "");
    this.reranker = chooser(facts.rerankers, name === "b" ? "none" : "");
    this.depth = numeric({ min: 1, max: facts.most_depth, step: 1, title: "how many hits the reranker reads" });
    this.blend = numeric({ min: 0, max: 1, step: 0.05, title: "how much the reranker counts: 0 not at all, 1 alone" });
    const badge = make("span", { className: `badge ${name}` }, name.toUpperCase());
    this.element = make("fieldset", { className: "setting", id: `setting-${name}`, "aria-label": `Setting ${name.toUpperCase()}` },
      make("legend", {}, badge),
      ...["fusion", "reranker", "depth", "blend"].map((one) => make("label", {}, one, this[one])));
  }

  value() {
    const found = {};
    if (this.fusion.value) found.fusion = this.fusion.value;
    if (this.reranker.value) found.reranker = this.reranker.value;
    if (this.depth.value) found.depth = within(this.depth, Math.round(Number(this.depth.value)));
    if (this.blend.value) found.blend = within(this.blend, Number(this.blend.value));
    return found;
  }
}

function chooser(options, chosen) {
  const select = make("select", {}, make("option", { value: "" }, "default"));
  for (const option of options) select.append(make("option", { value: option, selected: option === chosen }, option));
  return select;
}

const numeric = (options) => make("input", { type: "number", placeholder: "auto", ...options });

const within = (input, value) => Math.max(Number(input.min), Math.min(Number(input.max), value));
