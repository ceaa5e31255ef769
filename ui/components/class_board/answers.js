// What a class answered to the questions of the lessons: a table of marks, and for a chosen question who answered what.

import { make, setText } from "../../web/dom.js";
import { checked } from "../lesson/question.js";

/** The answers under a teacher's board. `call` asks the server. */
export function makeAnswers(call) {
  let lessons = []; // { name, title, questions }
  let rows = [];
  let chosen = ""; // "lesson.question"

  const table = make("table");
  const detail = make("div", { class: "asked", role: "status" });
  const element = make("details", { class: "answers", hidden: true }, make("summary", {}, "Answers to the lessons’ questions"),
    make("div", { class: "rows" }, table), detail);

  const keyOf = (lesson, question) => lesson.name + "." + question.id;
  const all = () => lessons.flatMap((lesson) => lesson.questions.map((question, at) => ({ key: keyOf(lesson, question), lesson, question, at })));

  /** A student's answer to a question: { given, right }; null if there is none. */
  function answerOf(row, { key, question }) {
    const given = row.answers[key];
    const found = given == null ? null : checked(question, given);
    return found && { given, right: found.right };
  }

  async function load() {
    lessons = (await call("questions"))?.lessons ?? [];
  }

  /** "Why a mask · 3 of 4 right": a student's lesson, and how many of its questions were answered right of those answered. */
  function lessonText(row) {
    const lesson = lessons.find(({ name }) => name === row.lesson);
    const given = (lesson?.questions ?? []).map((question) => answerOf(row, { key: keyOf(lesson, question), question })).filter(Boolean);
    const right = given.filter((answer) => answer.right).length;
    return row.lesson ? (lesson?.title ?? row.lesson.replaceAll("-", " ")) + (given.length ? " · " + right + " of " + given.length + " right" : "") : "–";
  }

  const textOf = (question, given) => (question.number ? String(given) : question.choices[given].text);

  function cell(row, one) {
    const answer = answerOf(row, one);
    if (!answer) return make("td", {}, "·");
    return make("td", { class: answer.right ? "good" : "bad", title: textOf(one.question, answer.given) }, answer.right ? "✓" : "✗");
  }

  function header(one) {
    const pick = () => {
      chosen = chosen === one.key ? "" : one.key;
      show(rows);
    };
    return make("th", { scope: "col" }, make("button", { type: "button", "data-key": one.key, "aria-pressed": String(one.key === chosen), onclick: pick,
      title: one.question.text, "aria-label": one.lesson.title + ", question " + (one.at + 1) }, one.at + 1));
  }

  function tally(one) {
    const given = rows.map((row) => answerOf(row, one)).filter(Boolean);
    return make("td", {}, given.length ? given.filter((answer) => answer.right).length + "/" + given.length : "·");
  }

  /** The chosen question: its text, and each answer with those who gave it, the right one first. */
  function showDetail() {
    const one = all().find(({ key }) => key === chosen);
    if (!one) return void setText(detail, "Press the number of a question to see who answered what.");
    const groups = new Map();
    for (const row of rows) {
      const answer = answerOf(row, one);
      if (!answer) continue;
      const text = textOf(one.question, answer.given);
      groups.set(text, { right: answer.right, names: [...(groups.get(text)?.names ?? []), row.nickname] });
    }
    const lines = [...groups].sort(([, a], [, b]) => b.right - a.right || b.names.length - a.names.length);
    detail.replaceChildren(make("p", { class: "text" }, one.lesson.title + ", " + (one.at + 1) + ". " + one.question.text),
      make("ul", {}, ...lines.map(([text, { right, names }]) => make("li", {},
        make("span", { class: right ? "good" : "bad" }, right ? "✓ " : "✗ "), text + " ",
        make("span", { class: "faint" }, "— " + names.length + ": ", ...names.flatMap((name, at) => [at ? ", " : "", make("bdi", {}, name)]))))),
      lines.length ? "" : make("p", { class: "faint" }, "Nobody has answered it yet."));
  }

  function show(now) {
    rows = [...now].sort((a, b) => a.number - b.number);
    element.hidden = !lessons.length || !rows.length;
    if (element.hidden) return;
    const focused = document.activeElement?.dataset?.key;
    const questions = all();
    table.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { rowspan: "2", scope: "col" }, "Student"),
        ...lessons.map((lesson) => make("th", { scope: "colgroup", colspan: lesson.questions.length }, lesson.title))),
        make("tr", {}, ...questions.map(header))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, make("th", { scope: "row" }, make("bdi", { class: "nickname" }, row.nickname)), ...questions.map((one) => cell(row, one))))),
      make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "right"), ...questions.map(tally))));
    if (focused) table.querySelector('[data-key="' + focused + '"]')?.focus();
    showDetail();
  }

  return { element, load, show, lessonText };
}
