// A question with checked answers: choices, or a number.

import { make, setText, uniqueName } from "../../web/dom.js";
import { answerTo, keepAnswer } from "./progress.js";

/** Whether an answer is right, and why: { right, reason }; null if there is no such choice. */
export function checked({ choices, number }, given) {
  if (!number && !choices[given]) return null;
  if (number) {
    const right = Math.abs(given - number.value) <= number.tolerance;
    return { right, reason: right ? number.right : number.wrong };
  }
  const { correct, reason } = choices[given];
  return { right: correct, reason };
}

/** Radio buttons for the choices, and a function that reads the chosen one. */
function makeChoices({ choices }) {
  const group = uniqueName("answer");
  const radios = choices.map((_, at) => make("input", { type: "radio", name: group, value: at }));
  const nodes = choices.map(({ text }, at) => make("label", { class: "choice" }, radios[at], make("span", {}, text)));
  const chosen = () => radios.findIndex((radio) => radio.checked);
  return {
    nodes,
    read: () => (chosen() < 0 ? null : chosen()),
    fill: (given) => radios[given] && (radios[given].checked = true),
    missing: "Choose an answer first.",
  };
}

function makeNumber({ text }) {
  const field = make("input", { type: "number", step: "any", inputmode: "decimal", "aria-label": text });
  return {
    nodes: [field],
    read: () => (field.value === "" ? null : Number(field.value)),
    fill: (given) => (field.value = given),
    missing: "Type a number first.",
  };
}

/** The form of a question; `onAnswer()` is called after each answer. */
export function makeQuestion(lesson, question, onAnswer) {
  const answer = question.number ? makeNumber(question) : makeChoices(question);
  const result = make("p", { class: "result", role: "status" });

  function show(given) {
    const { right, reason } = checked(question, given);
    result.className = "result " + (right ? "right" : "wrong");
    setText(result, (right ? "✓ Right. " : "✗ Not quite. ") + reason);
    return right;
  }

  function check(event) {
    event.preventDefault();
    const given = answer.read();
    if (given === null) {
      result.className = "result";
      return setText(result, answer.missing);
    }
    keepAnswer(lesson, question.id, given, show(given));
    onAnswer();
  }

  const before = answerTo(lesson, question.id)?.given;
  const isValid = question.number ? typeof before === "number" : Boolean(question.choices[before]);
  if (isValid) {
    answer.fill(before);
    show(before);
  }
  return make("form", { class: "ask", novalidate: true, onsubmit: check, "data-question": question.id },
    make("fieldset", {}, make("legend", {}, question.text), ...answer.nodes),
    make("div", { class: "tools" }, make("button", { type: "submit" }, "Check")), result);
}
