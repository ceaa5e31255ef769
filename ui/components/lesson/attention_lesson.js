// A lesson on attention: sections with text, live figures of the run's model, questions and links.

import { make, setText } from "../../web/dom.js";
import { callServer } from "../../web/server.js";
import { FIGURES } from "./figures/figures.js";
import { makeQuestion } from "./question.js";

/** Paragraphs of text; every second piece is code. */
export const paragraphs = (texts) => texts.map((pieces) =>
  make("p", {}, ...pieces.map((piece, at) => (at % 2 ? make("code", {}, piece) : piece))));

/** Ask the server for a figure of a lesson; the latest request wins. `fail(text)` shows an error, "" none. */
function requestsOf(server, lesson, fail) {
  let round = 0;
  return async (name, argument) => {
    const mine = (round += 1);
    const answer = await callServer(server, name, name === "snapshots" ? { name: lesson } : { lesson, ...argument });
    if (mine !== round) return null;
    const isValid = answer && !answer.error;
    fail(isValid ? "" : answer?.error || "The server did not answer.");
    return isValid ? answer : null;
  };
}

/**
 * Make the elements of a section and its figure. `takeError(text)` may take an error, and then returns true; otherwise
 * it is shown below the figure.
 */
function makeSection(lesson, section, server, takeError, onAnswer) {
  const box = section.figure && make("div", { class: "figure", role: "group", "aria-label": section.title });
  const error = box && make("p", { class: "bad", role: "alert" });
  const figure = box && FIGURES[section.figure.kind]({
    box, options: section.figure, lesson,
    request: requestsOf(server, lesson.name, (text) => setText(error, text && takeError(text) ? "" : text)),
  });
  const links = section.links.map(({ text, href }) => make("a", { href }, text));
  const node = make("section", {}, make("h3", {}, section.title), ...paragraphs(section.text), box, error,
    links.length ? make("p", { class: "links" }, ...links) : null,
    section.question ? makeQuestion(lesson.name, section.question, onAnswer) : null);
  return { node, figure };
}

/**
 * Fill an article with a lesson. `onAnswer()` is called when a question was answered, and `next` is the lesson after
 * it, { title, open() }, or null.
 */
export function showAttentionLesson(article, lesson, { server, onAnswer, next }) {
  const field = make("input", { type: "text", maxlength: 200, spellcheck: "false", autocomplete: "off", id: "lesson-input" });
  const error = make("p", { class: "bad", role: "alert" });
  let drawn = ""; // the input of the figures
  const showError = (text) => {
    setText(error, text && drawn ? text.replace(/\.$/, "") + "; the figures below are those of " + drawn : text);
    field.setAttribute("aria-invalid", String(Boolean(text)));
  };
  let isNew = false; // the input: all figures ask for it, so an error is the same for all
  const takeError = (text) => isNew && (showError(text), true);
  const parts = lesson.sections.map((section) => makeSection(lesson, section, server, takeError, onAnswer));
  const figures = parts.map((part) => part.figure).filter(Boolean);
  field.value = lesson.input;

  async function showFigures() {
    showError("");
    isNew = true;
    const typed = field.value;
    await Promise.all(figures.map((figure) => figure.show(typed)));
    isNew = false;
    if (!error.textContent) drawn = typed;
  }

  function use(event) {
    event.preventDefault();
    showFigures();
  }

  const form = make("form", { class: "tools input", onsubmit: use }, make("label", { for: "lesson-input" }, "Input of the figures"), field,
    make("button", { type: "submit" }, "Show"),
    make("span", { class: "muted" }, "computed now by " + lesson.run));
  article.replaceChildren(
    make("h2", { class: "title", tabindex: "-1" }, lesson.number + ". " + lesson.title),
    make("p", { class: "muted" }, lesson.summary), form, error, ...parts.map((part) => part.node),
    next ? make("button", { type: "button", class: "next", onclick: next.open }, "Next: " + next.title) : "");
  showFigures();
}
