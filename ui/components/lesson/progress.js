// What the reader has answered and which lesson was open last, kept in the browser.

import { inBrowser } from "../../web/remembered.js";

const KEY = "attention-lab-lessons";

/** { answers: { "lesson.question": { given, right } }, last: name of a lesson }; empty if there is none or it is damaged. */
function read() {
  try {
    const { answers, last } = JSON.parse(inBrowser.get(KEY) ?? "{}");
    return { answers: answers && typeof answers === "object" ? answers : {}, last: typeof last === "string" ? last : null };
  } catch {
    return { answers: {}, last: null };
  }
}

const write = (state) => inBrowser.set(KEY, JSON.stringify(state));

/** The answer that was given to a question, { given, right }; null if there is none. */
export const answerTo = (lesson, question) => read().answers[lesson + "." + question] ?? null;

export function keepAnswer(lesson, question, given, right) {
  const state = read();
  write({ ...state, answers: { ...state.answers, [lesson + "." + question]: { given, right } } });
}

/** How many of a lesson's questions were answered right. */
export const numRight = (lesson, questions) => questions.filter((id) => answerTo(lesson, id)?.right).length;

/** What a class's teacher sees: the lesson that was open last, and all answers, { "lesson.question": a number or the index of a choice }. */
export function lessonProgress() {
  const { answers, last } = read();
  const given = Object.entries(answers).flatMap(([key, answer]) => (Number.isFinite(answer?.given) ? [[key, answer.given]] : []));
  return { lesson: last ?? "", answers: Object.fromEntries(given) };
}

export const hasAnswers = () => Object.keys(read().answers).length > 0;
export const lastLesson = () => read().last;
export const keepLast = (name) => write({ ...read(), last: name });

/** Forget all answers; the last lesson stays. */
export const forgetAnswers = () => write({ ...read(), answers: {} });
