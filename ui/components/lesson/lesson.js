// The course: a list of the lessons on attention, of the lessons about bugs and of symptoms, and the open one.
// Event: 'train' {lesson}, to train the two runs of a lesson about a bug.

import { patchAddress, readAddress } from "../../web/address.js";
import { make, partsOf, setText } from "../../web/dom.js";
import { callServer } from "../../web/server.js";
import { showAttentionLesson } from "./attention_lesson.js";
import { makeBugLesson } from "./bug_lesson.js";
import { showSymptoms } from "./symptoms.js";
import { forgetAnswers, hasAnswers, keepLast, lastLesson, numRight } from "./progress.js";

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);
  const bug = makeBugLesson(element, (lesson) => trigger("train", { lesson }));
  const course = () => props.value?.attention ?? [];
  const bugs = () => props.value?.lessons ?? [];
  const menu = element.querySelector("details"); // on a phone, the list would fill the screen
  const isWide = () => innerWidth > 760;
  let open = null; // name of the open lesson
  let round = 0;

  // ---- the list ----

  /** "2 of 3", with a check mark when all are right. */
  function progressText({ name, questions }) {
    const right = numRight(name, questions);
    return (right === questions.length ? "✓ " : "") + right + " of " + questions.length;
  }

  function showList() {
    const button = (name, ...content) => make("button", { type: "button", value: name, "aria-current": String(name === open), onclick: () => pick(name) }, ...content);
    part("attention").replaceChildren(...course().map((each) => make("li", {}, button(each.name, make("span", {}, each.title),
      make("span", { class: "progress", title: "questions answered right" }, progressText(each))))));
    part("bugs").replaceChildren(...bugs().map(({ name, title }, at) => make("li", {}, button(name, at + 1 + ". " + title))));
    part("seen").replaceChildren(make("li", {}, button("symptoms", "All questions")));
    part("reset").hidden = !hasAnswers();
    setText(part("reset"), "Forget my answers");
  }

  /** Change progress and selection of the list in place, so that the focus stays. */
  function markList() {
    for (const button of part("list").querySelectorAll("li button")) {
      button.setAttribute("aria-current", String(button.value === open));
      const lesson = course().find(({ name }) => name === button.value);
      if (lesson) setText(button.querySelector(".progress"), progressText(lesson));
    }
    part("reset").hidden = !hasAnswers();
  }

  // ---- the open lesson ----

  function nextOf(name) {
    const at = course().findIndex((each) => each.name === name) + 1;
    const next = course()[at] ?? bugs()[0];
    return next ? { title: next.title, open: () => pick(next.name) } : null;
  }

  function goTo(name, article) {
    patchAddress({ lesson: name });
    menu.open = isWide();
    article.scrollIntoView({ block: "start" });
    article.querySelector(".title").focus({ preventScroll: true });
  }

  /** Open a lesson. Unless the reader chose it, the address and the scroll position stay. */
  async function pick(name, { chosen = true } = {}) {
    const mine = (round += 1);
    const kind = name === "symptoms" ? "symptoms" : course().some((each) => each.name === name) ? "attention-lesson" : "lesson";
    const article = part(kind);
    if (chosen && name === open) return goTo(name, article); // what the reader did in it stays
    const answer = await callServer(server, kind.replace("-", "_"), { name });
    if (mine !== round) return undefined;
    setText(part("error"), answer?.name ? "" : answer?.error || "The server did not return the lesson.");
    if (!answer?.name) return undefined;
    open = name;
    keepLast(name);
    for (const each of ["lesson", "attention-lesson", "symptoms"]) part(each).hidden = each !== kind;
    if (kind === "attention-lesson") showAttentionLesson(article, answer, { server, onAnswer: markList, next: nextOf(name) });
    else if (kind === "symptoms") showSymptoms(article, answer);
    else bug.show(answer);
    markList();
    return chosen ? goTo(name, article) : undefined;
  }

  /** Forget the answers at the second press. */
  function reset() {
    const sure = "Press again to forget all answers";
    if (part("reset").textContent !== sure) return setText(part("reset"), sure);
    forgetAnswers();
    showList();
    if (open) pick(open, { chosen: false });
  }

  part("reset").addEventListener("click", reset);
  part("reset").addEventListener("blur", () => setText(part("reset"), "Forget my answers"));
  menu.open = isWide();
  showList();
  watch("value", showList);
  const known = ["symptoms", ...[...course(), ...bugs()].map(({ name }) => name)];
  const linked = readAddress().get("lesson");
  const first = linked ?? (known.includes(lastLesson()) ? lastLesson() : course()[0]?.name);
  if (first) pick(first, { chosen: false });
}
