// The page: asks the server, shows one or two rankings, lets hits be rated.
import { askForKey, call, key } from "./api.js";
import { asText } from "./copying.js";
import { documentsFrom, documentsIn, SAMPLE } from "./documents.js";
import { byId, make } from "./dom.js";
import { showScore, startSession } from "./judging.js";
import { ranking } from "./ranking.js";
import { Settings } from "./settings.js";

let facts = null;
const settings = {};

function say(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

function chosenSource() {
  return document.querySelector("input[name=source]:checked").value;
}

function request(name) {
  const body = { query: byId("query").value.trim(), k: Math.max(1, Math.min(50, Number(byId("k").value) || 10)) };
  if (chosenSource() === "own") body.documents = documentsIn(byId("documents").value);
  if (name) body.settings = settings[name].value();
  return body;
}

async function working(work) {
  byId("search").disabled = true;
  say("Working…");
  try {
    say(await work());
  } catch (problem) {
    say(problem.message || String(problem), true);
  } finally {
    byId("search").disabled = false;
  }
}

function check() {
  const body = request("a");
  if (!body.query) throw new Error("Write a question first.");
  if (body.documents && !body.documents.length) throw new Error("Paste or upload documents first, or use the sample.");
}

async function search() {
  check();
  const names = byId("compare").checked ? ["a", "b"] : ["a"];
  const started = performance.now();
  const found = await Promise.all(names.map((name) => call("POST", "/v1/search", { ...request(name), explain: true })));
  const results = byId("results");
  results.classList.toggle("two", names.length === 2);
  results.replaceChildren(...found.map((data, at) => ranking(data, names.length === 2 ? names[at] : "")));
  return `${found[0].hits.length} hits in ${Math.round(performance.now() - started)} ms`;
}

async function judge() {
  check();
  const pair = { a: settings.a.value(), b: byId("compare").checked ? settings.b.value() : settings.a.value() };
  const box = await startSession({ ...request(null), settings: pair, blind: byId("blind").checked });
  byId("results").classList.remove("two");
  byId("results").replaceChildren(box);
  box.querySelector(".rate")?.focus();
  await showScore();
  return "Press 0 to 3 to rate the hit in focus.";
}

function move(step) {
  const cards = [...document.querySelectorAll("#results .result")];
  const at = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[Math.max(0, Math.min(cards.length - 1, at + step))];
  (next?.querySelector("summary") || next)?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const card = document.activeElement?.closest?.(".rate");
  if (event.key === "/") { event.preventDefault(); byId("query").focus(); }
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (card && /^[0-3]$/.test(event.key)) {
    // The focus moves at once: a quick second key would otherwise rate the same hit again.
    card.rate(Number(event.key)).catch((problem) => say(problem.message, true));
    move(1);
  }
}

function showCount() {
  const own = chosenSource() === "own";
  byId("own").hidden = !own;
  byId("count").textContent = own ? `${documentsIn(byId("documents").value).length} documents` : "";
}

async function copy(form) {
  try {
    await navigator.clipboard.writeText(asText(form, request("a"), Boolean(key())));
    say(`Copied as ${form}.`);
  } catch {
    const box = make("textarea", { rows: 10, readOnly: true, value: asText(form, request("a"), Boolean(key())) });
    byId("results").prepend(box);
    box.select();
    say("The browser does not let this page copy; the text is below.");
  }
}

function listen() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); working(search); });
  byId("judge").addEventListener("click", () => working(judge));
  byId("compare").addEventListener("change", () => { settings.b.element.hidden = !byId("compare").checked; });
  byId("documents").addEventListener("input", showCount);
  for (const radio of document.querySelectorAll("input[name=source]")) radio.addEventListener("change", showCount);
  byId("upload").addEventListener("change", async (event) => {
    const found = await documentsFrom(event.target.files).catch(() => []);
    byId("documents").value = found.join("\n\n");
    if (!found.length) say("These files hold no documents that this page can read.", true);
    showCount();
  });
  byId("sample").addEventListener("click", () => {
    byId("query").value = SAMPLE.query;
    byId("documents").value = SAMPLE.documents.join("\n");
    showCount();
    byId("query").focus();
  });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
  byId("key-button").addEventListener("click", askForKey);
  document.addEventListener("keydown", onKey);
}

async function begin() {
  listen();
  facts = await call("GET", "/v1/playground");
  for (const name of ["a", "b"]) {
    settings[name] = new Settings(name, facts);
    byId("settings").append(settings[name].element);
  }
  settings.b.element.hidden = true;
  byId("server").textContent = `${facts.model} · Resift ${facts.version}`;
  byId("judge-controls").hidden = !facts.judgements;
  const index = document.querySelector("input[value=index]");
  index.disabled = !facts.index;
  index.checked = facts.index;
  showCount();
  if (facts.judgements) await showScore();
  document.body.dataset.ready = "yes";
}

begin().catch((problem) => say(problem.message, true));
