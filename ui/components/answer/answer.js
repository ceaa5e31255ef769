// What the model wrote: the answer as tiles, whether it is right, and how sure it was at each step.
// Event: 'look' {step}, counted from 0, when the visitor wants to see a step's attention.

// ---- the answer ----

/** One token; `fault` ("wrong", "missing" or "") says what is not right about it, in words too. */
function makeTile(text, fault) {
  const look = { "": "tile", wrong: "tile wrong", missing: "tile wrong missing" }[fault];
  return make("span", { class: look, role: "listitem" },
    text, fault ? make("span", { class: "unseen" }, " (" + fault + ")") : null);
}

/** Tiles of the tokens; where they should have been others, the faults, and a gap for each that is missing. */
function showTiles(place, tokens, expected) {
  const fault = (token, at) => (expected && token !== expected[at] ? "wrong" : "");
  place.replaceChildren(
    ...tokens.map((token, at) => makeTile(visibleToken(token), fault(token, at))),
    ...(expected ?? []).slice(tokens.length).map(() => makeTile("–", "missing")));
  if (!tokens.length) place.append(make("span", { class: "quiet" }, "nothing: it stopped at once"));
}

function showVerdict(value) {
  const known = value.correct === true || value.correct === false;
  const verdict = part("verdict");
  verdict.className = "verdict " + (value.correct ? "good" : "bad");
  setText(verdict, known ? (value.correct ? "✓ correct" : "✗ wrong") : "");
}

/** What else there is to say: remarks from Python, that it never stopped, how long it took. */
function showNote(value) {
  const remarks = [
    value.note,
    value.stopped === false ? "did not stop by itself" : "",
    value.milliseconds == null ? "" : "decoded in " + (value.milliseconds < 1 ? "<1" : Math.round(value.milliseconds)) + " ms",
  ];
  setText(part("note"), remarks.filter(Boolean).join(" · "));
}

/** The best answers of a beam search, with what they are ranked by. */
function makeRanked(answer) {
  const figures = "score " + answer.score.toFixed(3) + ", log P " + answer.log_prob.toFixed(3) + (answer.stopped ? "" : ", did not stop");
  return make("li", {},
    make("span", { class: "token" }, answer.output.map(visibleToken).join(" ") || "(nothing)"),
    make("span", { class: "quiet" }, " · " + figures));
}

// ---- step by step ----

/** A token that was not the likeliest one, or was not chosen at all: why it stands there, and how likely it was. */
function makeRemark(step) {
  const likeliest = step.candidates?.[0]?.token === step.token;
  if (step.probability == null || (likeliest && !step.forced)) return null;
  return make("span", { class: "quiet" }, " " + (step.forced ? "forced, " : "") + formatPercent(step.probability));
}

function makeCandidate({ token, probability }) {
  const fill = make("span", { class: "fill" });
  fill.style.width = 100 * Math.min(1, Math.max(0, probability)) + "%";
  return make("span", { class: "candidate" },
    make("span", { class: "token" }, visibleToken(token)),
    make("span", { class: "share" }, formatPercent(probability)),
    make("span", { class: "bar", "aria-hidden": "true" }, fill));
}

function makeStep(step, at) {
  const cell = (attributes, ...inside) => make("td", { role: "cell", ...attributes }, ...inside);
  const look = make("button", {
    type: "button", class: "look", "aria-label": "look at step " + (at + 1), onclick: () => trigger("look", { step: at }),
  }, "attention");
  return make("tr", { role: "row" },
    cell({ "data-head": "step" }, String(at + 1)),
    cell({ class: "token", "data-head": "read" }, visibleToken(step.read)),
    cell({ class: "token produced", "data-head": "produced" }, visibleToken(step.token), makeRemark(step)),
    cell({ class: "wide" }, make("div", { class: "likely" }, ...(step.candidates ?? []).map(makeCandidate))),
    cell({}, look));
}

function show() {
  const value = props.value?.output ? props.value : null;
  part("empty").hidden = value !== null;
  part("shown").hidden = value === null;
  if (!value) return setText(part("verdict"), "");
  const { expected } = value;
  showTiles(part("output"), value.output, expected);
  showVerdict(value);
  part("expected-line").hidden = !expected;
  if (expected) showTiles(part("expected"), expected, null);
  showNote(value);
  const ranked = value.ranked ?? [];
  part("ranked").hidden = ranked.length < 2;
  part("ranked").replaceChildren(...ranked.map(makeRanked));
  const steps = value.steps ?? [];
  part("steps").hidden = steps.length === 0;
  element.querySelector("tbody").replaceChildren(...steps.map(makeStep));
}

show();
watch("value", show);
