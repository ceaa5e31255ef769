// The answers of the shown snapshot, token by token.

import { make, setText } from "../../web/dom.js";
import { isolated, visibleToken } from "../../web/format.js";
import { feed, isActive } from "../../web/run_feed.js";

const LONG = 8; // tokens; more are drawn smaller

function makeToken(text, fault) {
  const spoken = fault === "ok" ? null : { no: "wrong", missing: "missing" }[fault];
  return make("span", { class: "token " + fault }, text, spoken ? make("span", { class: "visually-hidden" }, " (" + spoken + ")") : null);
}

/** The produced tokens, marked right or wrong where the answer is known; the end of the sequence is left out. */
function outputTokens({ tokens, expected }) {
  if (!expected) return tokens.map((token) => makeToken(visibleToken(token), ""));
  const end = expected.at(-1);
  const shown = tokens.filter((token, at) => !(token === end && at === tokens.length - 1));
  const missing = expected.slice(shown.length).filter((token) => token !== end);
  return [...shown.map((token, at) => makeToken(visibleToken(token), token === expected[at] ? "ok" : "no")),
    ...missing.map(() => makeToken("–", "missing"))];
}

function isRight({ tokens, expected }) {
  return tokens.length === expected.length && tokens.every((token, at) => token === expected[at]);
}

/** A sentence of subwords and its translation as texts, and the reference where it is another. */
function makeTranslation({ texts: { source, output, expected } }) {
  const isReference = output === expected;
  return make("div", { class: "answer translation" },
    make("p", { class: "soft" }, source),
    make("p", {}, make("span", { class: "arrow", "aria-label": "becomes" }, "→ "), isolated(output) || "(empty)",
      isReference ? make("span", { class: "mark good" }, " ✓ as the reference") : null),
    expected && !isReference ? make("p", { class: "faint" }, "reference: " + isolated(expected)) : null);
}

function makeAnswer(answer) {
  if (answer.texts) return makeTranslation(answer);
  const right = answer.expected && isRight(answer);
  const long = answer.source.length > LONG || answer.tokens.length > LONG;
  const mark = answer.expected
    ? make("span", { class: right ? "mark good" : "mark bad", role: "img", "aria-label": right ? "correct" : "wrong" }, right ? "✓" : "✗")
    : null;
  return make("div", { class: long ? "answer long" : "answer" },
    make("span", { class: "tokens" }, ...answer.source.map((token) => makeToken(visibleToken(token), ""))),
    make("span", { class: "output" }, make("span", { class: "arrow", "aria-label": "becomes" }, "→"),
      make("span", { class: "tokens" }, ...outputTokens(answer)), mark));
}

/** Why there are no answers yet. */
function emptyText(snapshot) {
  if (snapshot && feed.latest?.watched) return "The watched pairs have too many attention weights to save. Watch shorter pairs.";
  if (snapshot) return "This model's answers are saved with its maps, and those are too large. Open “Decode” for one input.";
  if (feed.loading) return "Loading …";
  if (feed.run === null) return "Choose a preset and press Train: the answers of the model appear here while it learns.";
  if (!feed.latest) return "Loading …";
  if (isActive()) return "The first answers appear with the first evaluation.";
  if (feed.latest.status === "finished") return "This run was imported without the history of its training. Open “Decode” or “Look inside” to use its model.";
  return "This run has no saved answers, because it was stopped before the first evaluation.";
}

/** Returns a function that shows the answers of the feed. */
export function answersPanel(part) {
  let drawn = null;
  return () => {
    const snapshot = feed.shown;
    const answers = snapshot?.answers ?? [];
    setText(part("answers-title"), feed.latest?.watched ? "What it predicts now" : "What it answers now");
    part("answers-hint").hidden = answers.length > 0;
    part("answers").hidden = !answers.length;
    setText(part("answers-hint"), answers.length ? "" : emptyText(snapshot));
    const how = feed.latest?.watched ? "teacher-forced, step " : "weights of step ";
    setText(part("answers-when"), answers.length ? how + snapshot.step.toLocaleString("en") : "");
    if (drawn === snapshot) return;
    drawn = snapshot;
    part("answers").replaceChildren(...answers.map(makeAnswer));
  };
}
