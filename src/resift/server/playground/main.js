// Main module: sends queries, shows one or two rankings, and handles ratings. The URL stores the query.
import { askForKey, call, key } from "./api.js";
import { asText } from "./copying.js";
import { documentsFrom, documentsIn, SAMPLE } from "./documents.js";
import { byId, make } from "./dom.js";
import { parseFilter } from "./filters.js";
import { showScore, startSession } from "./judging.js";
import { answerPanel, ranking, searchPanel } from "./ranking.js";
import { Settings } from "./settings.js";

let choices = null;
let currentSearch = 0; // number of the latest search; responses to earlier searches are ignored
const settings = {};

function showStatus(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

const chosenSource = () => document.querySelector("input[name=source]:checked").value;

function request(name) {
  const body = { query: byId("query").value.trim(), k: Math.max(1, Math.min(50, Number(byId("k").value) || 10)) };
  if (chosenSource() === "own") body.documents = documentsIn(byId("documents").value);
  else if (byId("filter").value.trim()) body.where = parseFilter(byId("filter").value);
  if (name) body.settings = settings[name].value();
  return body;
}

async function runWithStatus(work) {
  byId("search").disabled = true;
  showStatus("Searching…");
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
  if (body.documents && !body.documents.length) {
    byId("start").hidden = false;
    throw new Error("Paste or upload documents first, or use the sample.");
  }
  return body;
}

async function search() {
  const body = check();
  const names = byId("compare").checked ? ["a", "b"] : ["a"];
  const number = (currentSearch += 1);
  byId("drawer").close();
  const answers = await Promise.all(names.map((name) => call("POST", "/v1/search", { ...request(name), explain: true })));
  if (number !== currentSearch) return "";
  saveToUrl(body);
  byId("start").hidden = true;
  const results = byId("results");
  const two = names.length === 2;
  results.className = two ? "two" : "one";
  results.replaceChildren(...answers.map((data, i) => ranking(data, two ? names[i] : "")));
  if (!two) {
    const side = make("aside", { "aria-label": "About this search" });
    results.append(side);
    if (wantsAnswer(body)) askFor(body, number, results, answers[0]);
    side.append(...searchPanel(answers[0], choices, results.querySelectorAll(".result"), enlarge));
  }
  window.scrollTo(0, 0);
  const count = answers[0].hits.length;
  const warnings = answers[0].warnings?.length ? ` ${answers[0].warnings.join(" ")}` : "";
  return `${count} ${count === 1 ? "hit" : "hits"} in ${Math.round(answers[0].timings?.total ?? 0)} ms.${warnings}`;
}

function wantsAnswer(body) {
  if (!byId("answer").checked || (!choices.ask && !body.documents)) return false;
  return body.query.endsWith("?") || body.query.split(/\s+/).length > 3;
}

async function askFor(body, number, results, ranked) {
  const question = { question: body.query, documents: body.documents, where: body.where };
  const box = answerPanel(null);
  results.prepend(box);
  const data = await call("POST", "/v1/ask", question).catch((problem) => ({ problem: problem.message }));
  if (number === currentSearch) box.replaceWith(answerPanel(data, ranked));
}

function enlarge(flowPicture) {
  byId("large-picture").replaceChildren(flowPicture);
  byId("large").showModal();
}

function saveToUrl(body) {
  const params = new URLSearchParams();
  if (!body.documents) {
    params.set("q", body.query);
    if (body.k !== 10) params.set("k", body.k);
    if (byId("filter").value.trim()) params.set("filter", byId("filter").value.trim());
    for (const [name, value] of Object.entries(body.settings || {})) params.set(name, value);
  }
  history.replaceState(null, "", params.size ? `#${params}` : location.pathname);
  document.title = body.documents ? "Resift playground" : `${body.query} – Resift`;
}

function loadFromUrl() {
  const params = new URLSearchParams(location.hash.slice(1));
  if (!params.get("q") || !choices.index) return false;
  byId("query").value = params.get("q");
  byId("k").value = params.get("k") || 10;
  byId("filter").value = params.get("filter") || "";
  settings.a.read(params);
  return true;
}

async function judge() {
  check();
  byId("drawer").close();
  const pair = { a: settings.a.value(), b: byId("compare").checked ? settings.b.value() : settings.a.value() };
  const { where, ...body } = request(null);
  if (where) throw new Error("Remove the filter to rate hits.");
  const box = await startSession({ ...body, settings: pair, blind: byId("blind").checked });
  byId("start").hidden = true;
  byId("results").className = "";
  byId("results").replaceChildren(box);
  box.querySelector(".rate")?.focus();
  await showScore();
  return "Press 0 to 3 to rate the selected hit.";
}

async function saveReport() {
  const data = await call("POST", "/v1/search", { ...check(), report: true });
  const link = make("a", { href: URL.createObjectURL(new Blob([data.report], { type: "text/html" })), download: "ranking.html" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return "Saved ranking.html. The page contains the texts of the hits.";
}

function move(step) {
  const cards = [...document.querySelectorAll("#results .result")];
  const current = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[Math.max(0, Math.min(cards.length - 1, current + step))];
  (next?.querySelector("summary") || next)?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const card = document.activeElement?.closest?.(".rate");
  if (event.key === "/") { event.preventDefault(); byId("query").focus(); }
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (card && /^[0-3]$/.test(event.key)) {
    // Move the focus at once, so that a quick second key press does not rate the same hit again.
    card.rate(Number(event.key)).catch((problem) => showStatus(problem.message, true));
    move(1);
  }
}

function showSource() {
  const own = chosenSource() === "own";
  byId("own").hidden = !own;
  byId("filter").hidden = own || !choices?.indexes.length;
  byId("count").textContent = own ? `${documentsIn(byId("documents").value).length} documents` : "";
}

async function copy(form) {
  try {
    await navigator.clipboard.writeText(asText(form, request("a"), Boolean(key())));
    showStatus(`Copied as ${form}.`);
  } catch {
    const box = make("textarea", { rows: 10, readOnly: true, value: asText(form, request("a"), Boolean(key())) });
    byId("drawer").append(box);
    box.select();
    showStatus("The browser blocked copying. Copy the text below instead.");
  }
}

function tryQuery(query) {
  byId("query").value = query;
  byId("ask").requestSubmit();
}

// Describe the available indexes and offer sample queries on the start page.
function describeIndexes() {
  const box = byId("index");
  box.hidden = !choices.indexes.length;
  for (const index of choices.indexes) {
    const facts = [
      index.passages === null ? "" : `${index.passages.toLocaleString("en")} passages`,
      index.files ? `${index.files.toLocaleString("en")} files` : "",
      index.embedder ? "keyword and vector search" : index.passages === null ? "" : "keyword search",
    ].filter(Boolean);
    box.append(make("p", {}, make("strong", {}, index.name), facts.length ? ` · ${facts.join(" · ")}` : ""));
  }
  const queries = choices.indexes.flatMap((index) => index.queries).slice(0, 6);
  if (queries.length) {
    box.append(make("p", { className: "dim" }, "Try a query:"),
      make("div", { className: "row wrap samples" }, ...queries.map((query) =>
        make("button", { type: "button", className: "quiet", onclick: () => tryQuery(query) }, make("bdi", {}, query)))));
  }
  const keys = [...new Set(choices.indexes.flatMap((index) => index.keys))];
  byId("filter-keys").append(...keys.map((name) => make("option", { value: `${name}=` })));
}

function listen() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); runWithStatus(search); });
  byId("judge").addEventListener("click", () => runWithStatus(judge));
  byId("export").addEventListener("click", () => runWithStatus(saveReport));
  byId("compare").addEventListener("change", () => { settings.b.element.hidden = !byId("compare").checked; });
  byId("documents").addEventListener("input", showSource);
  for (const radio of document.querySelectorAll("input[name=source]")) radio.addEventListener("change", showSource);
  byId("upload").addEventListener("change", async (event) => {
    const documents = await documentsFrom(event.target.files).catch(() => []);
    byId("documents").value = documents.join("\n\n");
    if (!documents.length) showStatus("No documents found in these files.", true);
    showSource();
  });
  byId("sample").addEventListener("click", () => {
    byId("query").value = SAMPLE.query;
    byId("documents").value = SAMPLE.documents.join("\n");
    showSource();
    byId("query").focus();
  });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
  byId("start-button").addEventListener("click", () => { byId("start").hidden = !byId("start").hidden; });
  byId("drawer-button").addEventListener("click", () => byId("drawer").showModal());
  byId("drawer-close").addEventListener("click", () => byId("drawer").close());
  byId("large-close").addEventListener("click", () => byId("large").close());
  byId("key-button").addEventListener("click", askForKey);
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => { if (loadFromUrl()) runWithStatus(search); });
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
  describeIndexes();
  showSource();
  if (choices.judgements) await showScore();
  document.body.dataset.ready = "yes";
  if (loadFromUrl()) await runWithStatus(search);
  else byId("query").focus();
}

begin().catch((problem) => showStatus(problem.message, true));
