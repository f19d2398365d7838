// The controls of one setting: fusion, reranker, depth and blend. The server chooses a value for each empty control.
import { make } from "./dom.js";

const LABELS = { fusion: "Merge lists by", reranker: "Reranker", depth: "Hits to rerank", blend: "Weight of the reranker, 0 to 1" };

export class Settings {
  constructor(name, choices) {
    this.fusion = selector(choices.fusions, "");
    this.reranker = selector(choices.rerankers, name === "b" ? "none" : "");
    this.depth = numeric({ min: 1, max: choices.most_depth, step: 1, title: "number of hits to rerank" });
    this.blend = numeric({ min: 0, max: 1, step: 0.05, title: "0 ignores the reranker, 1 uses only the reranker" });
    const badge = make("span", { className: `badge ${name}` }, name.toUpperCase());
    this.element = make("fieldset", { className: "setting", id: `setting-${name}`, "aria-label": `Setting ${name.toUpperCase()}` },
      make("legend", {}, badge),
      ...["fusion", "reranker", "depth", "blend"].map((field) =>
        make("label", {}, make("span", {}, LABELS[field]), this[field])));
  }

  read(values) {
    for (const field of ["fusion", "reranker", "depth", "blend"]) this[field].value = values.get(field) || "";
  }

  value() {
    const values = {};
    if (this.fusion.value) values.fusion = this.fusion.value;
    if (this.reranker.value) values.reranker = this.reranker.value;
    if (this.depth.value) values.depth = clamp(this.depth, Math.round(Number(this.depth.value)));
    if (this.blend.value) values.blend = clamp(this.blend, Number(this.blend.value));
    return values;
  }
}

function selector(options, selectedOption) {
  const select = make("select", {}, make("option", { value: "" }, "default"));
  for (const option of options) select.append(make("option", { value: option, selected: option === selectedOption }, option));
  return select;
}

const numeric = (options) => make("input", { type: "number", placeholder: "auto", ...options });

const clamp = (input, value) => Math.max(Number(input.min), Math.min(Number(input.max), value));
