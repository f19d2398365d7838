// The switches of one setting: fusion, reranker, depth, blend.
import { make } from "./dom.js";

const DEFAULTS = { fusion: "rrf", reranker: "cross-encoder", depth: 20, blend: 0.75 };

export class Settings {
  constructor(name, facts) {
    this.name = name;
    const choose = (options, value) => {
      const select = make("select");
      for (const option of options) select.append(make("option", { value: option, selected: option === value }, option));
      return select;
    };
    this.fusion = choose(facts.fusions, DEFAULTS.fusion);
    this.reranker = choose(facts.rerankers, name === "b" ? "none" : DEFAULTS.reranker);
    this.depth = make("input", { type: "number", min: 1, max: facts.most_depth, value: DEFAULTS.depth });
    this.blend = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: DEFAULTS.blend });
    const shown = make("output", {}, String(DEFAULTS.blend));
    this.blend.addEventListener("input", () => { shown.textContent = this.blend.value; });
    const labelled = (text, ...inputs) => make("label", {}, text, ...inputs);
    const badge = make("span", { className: `badge ${name}` }, name.toUpperCase());
    this.element = make("fieldset", { className: "setting", id: `setting-${name}` },
      make("legend", {}, badge),
      labelled("fusion", this.fusion), labelled("reranker", this.reranker),
      labelled("depth", this.depth), labelled("blend", this.blend, shown));
  }

  value() {
    return {
      fusion: this.fusion.value,
      reranker: this.reranker.value,
      depth: Math.max(1, Math.min(Number(this.depth.max), Math.round(Number(this.depth.value) || DEFAULTS.depth))),
      blend: Number(this.blend.value),
    };
  }
}
