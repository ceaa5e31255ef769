// The output as tiles, whether it is correct, and the most probable tokens of each step.
// Event: 'inspect' {step}, counted from 0, to see the attention of a step.

import { make, setText, partsOf } from "../../web/dom.js";
import { formatPercent, isolated, tokenNamer, visibleToken } from "../../web/format.js";
import { askWhy } from "../../web/navigation.js";
import { ribbon } from "../../web/ribbon.js";
import { pollWhileVisible } from "../../web/server.js";

const CHECK_MS = 300; // Gradio changes the input without an event

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);
  const showRibbon = ribbon(part("lines"));

  // ---- output ----

  /** One token; `fault` is "wrong", "missing" or "". */
  function makeTile(text, fault) {
    const classes = { "": "tile", wrong: "tile wrong", missing: "tile wrong missing" }[fault];
    return make("span", { class: classes, role: "listitem" },
      text, fault ? make("span", { class: "visually-hidden" }, " (" + fault + ")") : null);
  }

  /** Show tokens as tiles; wrong and missing ones are marked if the expected output is known. */
  function showTiles(box, tokens, expected) {
    const fault = (token, at) => (expected && token !== expected[at] ? "wrong" : "");
    box.replaceChildren(
      ...tokens.map((token, at) => makeTile(visibleToken(token), fault(token, at))),
      ...(expected ?? []).slice(tokens.length).map(() => makeTile("–", "missing")));
    if (!tokens.length) box.append(make("span", { class: "muted" }, "empty output: the first token was <EOS>"));
  }

  /** Show a sentence of subwords as text. */
  function showSentence(box, text) {
    box.replaceChildren(make("span", { class: text ? "sentence" : "muted", role: "listitem" }, text || "empty output: the first token was <EOS>"));
  }

  function showVerdict(value) {
    const known = value.correct === true || value.correct === false;
    const verdict = part("verdict");
    const texts = value.texts ? ["✓ as the reference", "differs from the reference"] : ["✓ correct", "✗ wrong"];
    verdict.className = "verdict " + (value.correct ? "good" : value.texts ? "other" : "bad"); // there are other good translations
    setText(verdict, known ? texts[value.correct ? 0 : 1] : "");
    const isShown = known && value.held_out != null;
    setText(part("ground"), isShown ? (value.held_out ? "held out: training never reads this input" : "not held out: training may have read this input") : "");
  }

  /** Say whether the answer is as probable as the model's correct ones; nothing where that was not measured, or it is wrong. */
  function showSureness({ unsure, correct, texts }) {
    part("sureness").hidden = unsure == null || (!unsure && !texts && correct === false);
    part("sureness").className = "sureness " + (unsure ? "unsure" : "muted");
    setText(part("sureness"), unsure
      ? "Unsure: its tokens are less probable on average than in nine of ten of the model’s correct validation answers."
      : "Its tokens are about as probable as in the model’s correct validation answers, which does not make it right.");
  }

  /** Show the note from Python, whether EOS is missing, and the decoding time. */
  function showNote(value) {
    const remarks = [
      value.note,
      value.stopped === false ? "stopped at the length limit, without <EOS>" : "",
      value.milliseconds == null ? "" : "decoded in " + (value.milliseconds < 1 ? "<1" : Math.round(value.milliseconds)) + " ms",
    ];
    setText(part("note"), remarks.filter(Boolean).join(" · "));
  }

  /** One of the n best hypotheses of a beam search, with its score. */
  function makeHypothesis(answer) {
    const scores = "score " + answer.score.toFixed(3) + ", log P " + answer.log_prob.toFixed(3) + (answer.stopped ? "" : ", no <EOS>");
    return make("li", {},
      make("span", { class: "token" }, (answer.text ?? answer.output.map(visibleToken).join(" ")) || "(empty)"),
      make("span", { class: "muted" }, " · " + scores));
  }

  // ---- steps ----

  /** The probability of a token that was not the most probable one, or was forced by the prefix. */
  function makeRemark(step) {
    const isMostProbable = step.candidates?.[0]?.token === step.token;
    if (step.probability == null || (isMostProbable && !step.forced)) return null;
    return make("span", { class: "muted" }, " " + (step.forced ? "prefix, " : "") + formatPercent(step.probability));
  }

  /**
   * A candidate of a step; `ask`, if there is one, asks why the produced token was chosen rather than this one. The keyboard
   * asks with "why?" and chooses the other token there, so that a table of steps is not a hundred stops of Tab.
   */
  function makeCandidate({ token, probability }, name, ask) {
    const fill = make("span", { class: "fill" });
    fill.style.width = 100 * Math.min(1, Math.max(0, probability)) + "%";
    const term = { "data-term": token.startsWith("<") ? token : null };
    return make("span", { class: "candidate" },
      ask ? make("button", { type: "button", class: "token ask", tabindex: -1, ...ask, ...term }, name(token)) : make("span", { class: "token", ...term }, name(token)),
      make("span", { class: "probability" }, formatPercent(probability)),
      make("span", { class: "bar", "aria-hidden": "true" }, fill));
  }

  /** What a button asks about a step: why its token was produced, and rather than which other one. */
  const question = (step, at, token, name) => {
    const foil = token === step.token ? null : token;
    const label = "Why " + isolated(name(step.token)) + (foil === null ? "" : ", not " + isolated(name(foil))) + "?";
    return { title: label, "aria-label": label, onclick: () => askWhy({ step: at, foil }) };
  };

  function makeStep(step, at, expected, name, { isExplained, hasHeads }) {
    const isWrong = expected && step.token !== (expected[at] ?? "<EOS>");
    const mark = isWrong ? make("span", { class: "bad" }, " ✗", make("span", { class: "visually-hidden" }, " wrong")) : null;
    const cell = (attributes, ...inside) => make("td", { role: "cell", ...attributes }, ...inside);
    const inspect = hasHeads ? make("button", {
      type: "button", class: "inspect", "aria-label": "attention of step " + (at + 1), onclick: () => trigger("inspect", { step: at }),
    }, "attention") : null;
    const why = isExplained ? make("button", { type: "button", class: "ask-why", ...question(step, at, step.token, name) }, "why?") : null;
    return make("tr", { role: "row" },
      cell({ "data-head": "step" }, String(at + 1)),
      cell({ class: "token", "data-head": "previous" }, name(step.read)),
      cell({ class: "token produced", "data-head": "produced" }, isolated(name(step.token)), mark, makeRemark(step)),
      cell({ class: "wide" }, make("div", { class: "candidates" }, ...(step.candidates ?? []).map((each) =>
        makeCandidate(each, name, isExplained && question(step, at, each.token, name))))),
      cell({}, make("span", { class: "asks" }, inspect, why)));
  }

  function show() {
    const value = props.value?.output ? props.value : null;
    part("empty").hidden = value !== null;
    setText(part("empty"), props.value?.failed ? "The input could not be decoded: the message under it says why." : "Nothing decoded yet. Enter an input above and press Decode.");
    part("shown").hidden = value === null;
    if (!value) return setText(part("verdict"), "");
    const { expected, texts } = value;
    if (texts) showSentence(part("output"), texts.output);
    else showTiles(part("output"), value.output, expected);
    showVerdict(value);
    part("expected-line").hidden = !expected;
    setText(part("expected-name"), texts ? "reference" : "expected");
    if (expected && texts) showSentence(part("expected"), texts.expected);
    else if (expected) showTiles(part("expected"), expected, null);
    showSureness(value);
    showNote(value);
    showRibbon(value.record ?? null, { probabilities: value.steps?.map(({ probability }) => probability) });
    const hypotheses = value.n_best ?? [];
    part("n-best").hidden = hypotheses.length < 2;
    part("n-best").replaceChildren(...hypotheses.map(makeHypothesis));
    const steps = value.steps ?? [];
    const offered = { isExplained: value.explained, hasHeads: value.has_heads !== false }; // the buttons of a step
    part("steps").hidden = steps.length === 0;
    element.querySelector("tbody").replaceChildren(...steps.map((step, at) => makeStep(step, at, texts ? null : expected, tokenNamer(texts), offered)));
  }

  /** Gray the answer out while the input is another one than it answers, be it still being typed or without a server. */
  function showFormer() {
    const typed = document.querySelector("#input textarea, #input input, #text")?.value;
    const given = props.value?.asked;
    const isFormer = typed != null && given != null && typed.trim() !== given.trim();
    part("shown").classList.toggle("former", isFormer);
    part("former-note").hidden = !isFormer;
    return CHECK_MS;
  }

  show();
  document.addEventListener("input", showFormer);
  pollWhileVisible(element, showFormer);
  watch("value", show);
}
