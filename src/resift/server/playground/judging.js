// Rate hits from 0 to 3 by mouse or keyboard, and show the running score of both settings.
import { call } from "./api.js";
import { byId, make } from "./dom.js";

const LABELS = ["useless", "related", "answers it", "perfect match"];

export async function startSession(request) {
  const session = await call("POST", "/v1/judge/sessions", request);
  const box = make("section", { className: "ranking", "aria-label": "Hits to rate" });
  box.append(make("p", { className: "dim" }, "Rate each hit for the query: 0 useless, 1 related, 2 answers it, 3 perfect match."));
  for (const [index, hit] of session.hits.entries()) box.append(ratingCard(session, hit, index));
  return box;
}

function ratingCard(session, hit, index) {
  const grades = make("span", { className: "grades", role: "group", "aria-label": "rating" });
  const card = make("article", { className: "result rate", tabIndex: 0 },
    make("div", { className: "top" },
      make("span", { className: "place" }, String(index + 1)),
      make("span", { className: "what" }, make("bdi", {}, hit.text)),
      grades));
  const show = (grade) => {
    for (const button of grades.children) button.setAttribute("aria-pressed", String(Number(button.textContent) === grade));
  };
  card.rate = async (grade) => {
    await call("POST", "/v1/judge/ratings", { session: session.session, id: hit.id, grade });
    show(grade);
    await showScore();
  };
  for (let grade = 0; grade < 4; grade += 1) {
    grades.append(make("button", { type: "button", className: "quiet", title: LABELS[grade], onclick: () => card.rate(grade) }, String(grade)));
  }
  show(hit.grade === null ? -1 : hit.grade);
  return card;
}

export async function showScore() {
  const score = await call("GET", "/v1/judge/score");
  const box = byId("score");
  box.hidden = score.questions === 0;
  const interval = (ends) => (ends ? ` [${ends[0].toFixed(3)} to ${ends[1].toFixed(3)}]` : "");
  const format = (value) => (value.mean === null ? "–" : value.mean.toFixed(3) + interval(value.interval));
  const part = (name) => make("span", {},
    make("span", { className: `badge ${name}` }, name.toUpperCase()), " ",
    make("meter", { min: 0, max: 1, value: score[name].mean || 0 }), ` ${format(score[name])}`);
  const same = JSON.stringify(score.settings?.a) === JSON.stringify(score.settings?.b);
  const blind = score.blind;
  const wins = blind.a + blind.b + blind.tie;
  box.replaceChildren(
    make("strong", {}, `${score.measure}, ${score.questions} ${score.questions === 1 ? "query" : "queries"}, ${score.ratings} ratings`),
    ...(same ? [make("span", {}, make("meter", { min: 0, max: 1, value: score.a.mean || 0 }), ` ${format(score.a)}`)]
      : [part("a"), part("b"), make("span", {}, `A − B ${format(score.difference)}`)]),
    ...(wins ? [make("span", {}, `blind: A wins ${blind.a}, B ${blind.b}, ties ${blind.tie}`)] : []));
}
