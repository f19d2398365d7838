// The page: sends queries, shows one or two rankings, and lets people rate hits.
import { askForKey, call, key } from "./api.js";
import { asText } from "./copying.js";
import { documentsFrom, documentsIn, SAMPLE } from "./documents.js";
import { byId, make } from "./dom.js";
import { showScore, startSession } from "./judging.js";
import { ranking } from "./ranking.js";
import { Settings } from "./settings.js";

let choices = null;
const settings = {};

function showStatus(text, wrong = false) {
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
  showStatus("Working…");
  try {
    showStatus(await work());
  } catch (problem) {
    showStatus(problem.message || String(problem), true);
  } finally {
    byId("search").disabled = false;
  }
}

function check() {
  const body = request("a");
  if (!body.query) throw new Error("Enter a query first.");
  if (body.documents && !body.documents.length) throw new Error("Paste or upload documents first, or use the sample.");
}

async function search() {
  check();
  const names = byId("compare").checked ? ["a", "b"] : ["a"];
  const started = performance.now();
  const answers = await Promise.all(names.map((name) => call("POST", "/v1/search", { ...request(name), explain: true })));
  const results = byId("results");
  results.classList.toggle("two", names.length === 2);
  results.replaceChildren(...answers.map((data, i) => ranking(data, names.length === 2 ? names[i] : "")));
  return `${answers[0].hits.length} hits in ${Math.round(performance.now() - started)} ms`;
}

async function judge() {
  check();
  const pair = { a: settings.a.value(), b: byId("compare").checked ? settings.b.value() : settings.a.value() };
  const box = await startSession({ ...request(null), settings: pair, blind: byId("blind").checked });
  byId("results").classList.remove("two");
  byId("results").replaceChildren(box);
  box.querySelector(".rate")?.focus();
  await showScore();
  return "Press 0 to 3 to rate the selected hit.";
}

function move(step) {
  const cards = [...document.querySelectorAll("#results .result")];
  const current = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[Math.max(0, Math.min(cards.length - 1, current + step))];
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
    card.rate(Number(event.key)).catch((problem) => showStatus(problem.message, true));
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
    showStatus(`Copied as ${form}.`);
  } catch {
    const box = make("textarea", { rows: 10, readOnly: true, value: asText(form, request("a"), Boolean(key())) });
    byId("results").prepend(box);
    box.select();
    showStatus("The browser does not allow copying. The text is below.");
  }
}

function listen() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); working(search); });
  byId("judge").addEventListener("click", () => working(judge));
  byId("compare").addEventListener("change", () => { settings.b.element.hidden = !byId("compare").checked; });
  byId("documents").addEventListener("input", showCount);
  for (const radio of document.querySelectorAll("input[name=source]")) radio.addEventListener("change", showCount);
  byId("upload").addEventListener("change", async (event) => {
    const documents = await documentsFrom(event.target.files).catch(() => []);
    byId("documents").value = documents.join("\n\n");
    if (!documents.length) showStatus("This page found no documents in these files.", true);
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
  choices = await call("GET", "/v1/playground");
  for (const name of ["a", "b"]) {
    settings[name] = new Settings(name, choices);
    byId("settings").append(settings[name].element);
  }
  settings.b.element.hidden = true;
  byId("server").textContent = `${choices.model} · Resift ${choices.version}`;
  byId("judge-controls").hidden = !choices.judgements;
  const index = document.querySelector("input[value=index]");
  index.disabled = !choices.index;
  index.checked = choices.index;
  showCount();
  if (choices.judgements) await showScore();
  document.body.dataset.ready = "yes";
}

begin().catch((problem) => showStatus(problem.message, true));
