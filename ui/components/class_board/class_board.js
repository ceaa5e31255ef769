// A class: a dialog to open, join and lead one, and a line under the bar for its students.
// The bar loads this script when it is first needed. Nicknames and titles come from strangers: they are shown as text.

import { linkTo, patchAddress, readAddress } from "../../web/address.js";
import { make, partsOf, setText } from "../../web/dom.js";
import { laterStyles } from "../../web/later_styles.js";
import { openPreset, tabName } from "../../web/navigation.js";
import { inBrowser } from "../../web/remembered.js";
import { feed } from "../../web/run_feed.js";
import { callServer } from "../../web/server.js";
import { lessonProgress } from "../lesson/progress.js";
import { makeBoard } from "./teacher.js";

const KEY = "attention-lab-class"; // in the browser's storage, while the visitor is in a class or teaches one
const SEEN = "attention-lab-class-seen"; // key of the last thing the teacher sent that was opened or closed
const STUDENT_MS = 3000;

let view = null;

/** Open the dialog; with `joining` only if the visitor comes with a class's link and is in none. */
export async function openClass({ element, server, pick, gone, joining }) {
  await laterStyles();
  view ??= makeView(element, server, pick, gone);
  await view.open(joining);
}

function makeView(element, server, pick, gone) {
  const bar = partsOf(element);
  let role = null; // the last answer of the server about the visitor's role
  let timer = 0;
  let unsent = ""; // why the last press of Help did not reach the teacher
  let leaves = false; // whether the visitor has just pressed Leave

  const dialog = make("dialog", { class: "lab-component lab-class_board", "aria-labelledby": "class-heading" });
  const line = make("div", { class: "lab-component lab-class_board seat", role: "region", "aria-label": "Class", hidden: true });
  document.querySelector(".gradio-container").append(dialog);
  document.querySelector("#main").before(line); // it scrolls away: below the bar, it would cover the tabs
  new ResizeObserver(() => { // the settings and the bench are that much lower
    document.documentElement.style.setProperty("--seat", line.offsetHeight + "px");
  }).observe(line);

  const problem = make("p", { class: "problem bad", role: "alert" });
  const body = make("div", { class: "body" });
  dialog.append(
    make("div", { class: "head" }, make("h2", { id: "class-heading" }, "Class"),
      make("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
    problem, body);

  const poll = (name) => callServer(server, "class_" + name, name === "role" ? lessonProgress() : {});
  const board = makeBoard({ call, poll, explain: (text) => setText(problem, text), dialog, button: bar("class"), show: showRole, openRun: (run) => {
    dialog.close();
    pick(run);
  } });

  /** Call a server function; an error is explained in the dialog, null is returned. */
  async function call(name, argument = {}) {
    const answer = await callServer(server, "class_" + name, argument);
    setText(problem, !answer ? "No answer from the server." : answer.error ?? "");
    return answer && !answer.error ? answer : null;
  }

  // ---- join ----

  function labeled(label, input) {
    return make("label", {}, make("span", {}, label), input);
  }

  function showEntrance() {
    const code = make("input", { class: "code-input", name: "code", maxlength: "20", autocomplete: "off", autocapitalize: "characters",
      spellcheck: "false", required: true, value: readAddress().get("class") ?? "" });
    const nickname = make("input", { class: "nickname-input", name: "nickname", maxlength: "30", autocomplete: "nickname", required: true });
    const join = async (event) => {
      event.preventDefault();
      const answer = await call("join", { code: code.value, nickname: nickname.value });
      if (!answer) return;
      patchAddress({ class: null });
      dialog.close();
      showRole(answer);
    };
    body.replaceChildren(
      make("form", { class: "join", onsubmit: join }, make("h3", {}, "Join a class"),
        make("div", { class: "fields" }, labeled("Code", code), labeled("Nickname", nickname), make("button", { type: "submit", class: "main" }, "Join")),
        make("p", { class: "faint" }, "No account is needed. Your teacher sees the runs that you start or resume in the class, which lesson you have open, and your answers to the questions of the lessons. Nothing else of yours.")),
      make("div", { class: "open-class" }, make("h3", {}, "Teach one"),
        make("p", { class: "muted" }, "You get a code and a link for your students, and a board with everyone's run. The class ends when you end it, after " + (role?.hours === 1 ? "an hour" : role?.hours + " hours") + " without a visit, or after " + role?.most_hours + " hours."),
        make("button", { type: "button", class: "open", onclick: async () => showRole((await call("open")) ?? role) }, "Open a class")));
    (code.value ? nickname : code).focus();
  }

  // ---- the student ----

  function showStudent() {
    body.replaceChildren(
      make("p", {}, "You are in the class as ", make("bdi", { class: "nickname" }, role.nickname), "."),
      make("p", { class: "faint" }, "Your teacher sees the runs that you start or resume in the class, which lesson you have open, and your answers to the questions of the lessons. Nothing else of yours."),
      make("div", { class: "tools" },
        make("button", { type: "button", class: "main", onclick: () => askForHelp(!role.help).then(() => dialog.close()) }, role.help ? "I need no help" : "I need help"),
        make("button", { type: "button", class: "leave", onclick: leave }, "Leave the class")));
  }

  async function askForHelp(wanted) {
    const answer = await call("help", { wanted });
    unsent = answer ? "" : "Not sent: " + problem.textContent + " Press again.";
    if (answer) showRole(answer);
    else showLine();
  }

  function showWaiting() {
    body.replaceChildren(
      make("p", { role: "status" }, "You asked to join as ", make("bdi", { class: "nickname" }, role.nickname), ". Wait until your teacher lets you in."),
      make("div", { class: "tools" }, make("button", { type: "button", class: "leave", onclick: leave }, "Do not join")));
  }

  async function leave() {
    const answer = await call("leave");
    leaves = Boolean(answer);
    if (answer) showRole(answer);
  }

  function handoutText({ preset, lesson, tab }) {
    if (preset) return "Your teacher sent the preset " + preset + ".";
    if (lesson) return "Your teacher sent a lesson.";
    return tabName(tab) ? "Your teacher sent a page of the tab " + tabName(tab) + "." : "Your teacher sent a page.";
  }

  function closeHandout() {
    inBrowser.set(SEEN, role.handout.key);
    showLine();
  }

  function openHandout() {
    const { parameters } = role.handout;
    closeHandout();
    if (parameters.preset) openPreset(parameters.preset);
    else window.location.assign(linkTo(parameters));
  }

  const GONE = {
    student: "You are no longer in the class: it has ended, or your teacher removed you. Your runs are saved and remain yours.",
    waiting: "You were not let into the class, or it has ended.",
  };

  /** What a student hears when the class is over, until it is closed. */
  function showGone(was) {
    delete line.dataset.shown;
    line.hidden = false;
    line.replaceChildren(make("span", { class: "gone", role: "status" }, GONE[was]),
      make("button", { type: "button", "aria-label": "Close this message", onclick: () => (line.hidden = true) }, "✕"));
  }

  function showLine() {
    if (role.role === "none" && line.querySelector(".gone")) return;
    line.hidden = !["student", "waiting"].includes(role.role);
    if (line.hidden) return;
    if (role.role === "waiting") {
      delete line.dataset.shown;
      if (!line.querySelector(".waits")) {
        line.replaceChildren(make("span", { class: "who waits", role: "status" }, "Class · ", make("bdi", {}, role.nickname), " · waiting until your teacher lets you in"));
      }
      return;
    }
    const { handout, help } = role;
    const isNew = handout && inBrowser.get(SEEN) !== handout.key;
    const key = JSON.stringify([role, isNew, unsent]);
    if (line.dataset.shown === key) return;
    line.dataset.shown = key;
    const focused = document.activeElement?.dataset?.does;
    line.replaceChildren(...[
      make("span", { class: "who" }, "Class · ", make("bdi", {}, role.nickname)),
      make("button", { type: "button", class: "help", "aria-pressed": String(help), "data-does": "help", onclick: () => askForHelp(!help) },
        help ? "Your teacher knows. Press when you no longer need help" : "I need help"),
      unsent ? make("span", { class: "bad", role: "alert" }, unsent) : "",
      isNew ? make("span", { class: "handout", role: "status" }, handoutText(handout.parameters),
        make("button", { type: "button", class: "main open-handout", "data-does": "open", onclick: openHandout }, "Open"),
        make("button", { type: "button", "aria-label": "Close this message", "data-does": "close", onclick: closeHandout }, "✕")) : "",
    ]);
    if (focused) line.querySelector('[data-does="' + focused + '"]')?.focus();
  }

  // ---- what the visitor is ----

  function showRole(answer) {
    if (!answer?.role) return;
    const isNew = role?.role !== answer.role;
    const was = role?.role ?? inBrowser.get(KEY);
    role = answer;
    if (role.role === "none" && GONE[was] && !leaves) showGone(was);
    if (role.role === "none" && was === "teacher" && feed.latest?.student) gone(feed.run);
    leaves = false;
    if (role.role === "none") inBrowser.remove(KEY);
    else inBrowser.set(KEY, role.role);
    showLine();
    board.lead(role.role === "teacher");
    if (dialog.open && isNew) showBody();
    schedule();
  }

  function showBody() {
    if (role?.role === "teacher") board.showIn(body);
    else if (role?.role === "student") showStudent();
    else if (role?.role === "waiting") showWaiting();
    else showEntrance();
    dialog.dataset.role = role?.role ?? "none";
  }

  /** A student's page asks every few seconds for what the teacher sent. */
  function schedule() {
    clearTimeout(timer);
    if (!["student", "waiting"].includes(role?.role)) return;
    timer = setTimeout(async () => {
      const answer = await poll("role");
      if (answer?.role) showRole(answer);
      else schedule(); // no connection
    }, STUDENT_MS);
  }

  async function open(joining) {
    const answer = await call("role");
    showRole(answer);
    const isLink = readAddress().has("class");
    if (joining && isLink && role?.role && role.role !== "none") patchAddress({ class: null });
    if (joining && (!isLink || (role?.role ?? "none") !== "none")) return;
    if (!dialog.open) dialog.showModal();
    if (answer || role) showBody(); // a role that is known outlasts a lost connection
    else body.replaceChildren(); // no class is possible here; the problem says why
  }

  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return { open };
}

