// The bar at the top: the current run with progress, Stop and Resume; a menu of all runs; the tour and the theme.
// Events: 'pick' {run}; 'status' {run, status} when the status of the current run changes; 'weights' {step} when the
// run that trains has new weights and a tab that decodes is open; 'gone' {run} after the run was deleted here,
// or the class ended whose teacher saw it. 'pick' has run "" after the run was deleted elsewhere.

import { patchAddress, readAddress } from "../../web/address.js";
import { make, partsOf, setText } from "../../web/dom.js";
import { dropDrafts } from "../../web/drafts.js";
import { formatResult, formatSeconds, startText } from "../../web/format.js";
import { laterStyles } from "../../web/later_styles.js";
import { feed, follow, isActive, onFeed, setLoading, setTranslator, startFeed } from "../../web/run_feed.js";
import { inBrowser, inTab } from "../../web/remembered.js";
import { callServer } from "../../web/server.js";
import { reportStillOpen } from "../../web/still_open.js";
import { startTour } from "../../web/tour_offer.js";

const DECODING_TABS = ["decode", "attention"];
const LOST = "attention-lab-lost-train"; // in the storage of this tab: Gradio reloads the page after an outage
const LOST_MS = 5000; // between a press of Train and the outage that it met
const WEIGHTS_MS = 1500; // between two decodes of the current input while the run trains

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);
  let knownStatus = null; // the current run's last known status
  let startedRun = null; // started by this page, and no status of it is known yet
  let decodedStep = null; // training step of the weights of the last requested decode
  let decodedAt = 0;
  let closed = ""; // the problem that the visitor has read and closed
  let pressedTrain = -Infinity; // when

  let menu = null; // of all runs; its script loads when it is first opened

  // ---- the current run ----

  const STATUS = { queued: "queued", training: "training", stopping: "stopping", stopped: "stopped", finished: "finished",
    failed: "failed", interrupted: "interrupted" };

  /** "next in the queue", "2nd in the queue". */
  function queueText(position) {
    if (position === 1) return "next in the queue";
    const teens = position % 100 >= 11 && position % 100 <= 13;
    return position + ((!teens && ["", "st", "nd", "rd"][position % 10]) || "th") + " in the queue";
  }

  /** The status in two parts; a narrow bar shows the second. */
  function statusParts({ status, queue_position: position, seconds_to_start: wait, headline, step, watched }) {
    if (status === "queued" && position) return ["", queueText(position) + (wait == null ? "" : ", " + startText(wait))];
    const result = formatResult({ headline });
    if (status === "finished" && !step) return ["", "imported"]; // from another program
    if (status === "finished" && result) return ["finished, " + (watched ? "" : "validation "), result]; // a watched loop chooses its batch
    return ["", STATUS[status] ?? status];
  }

  function rateText({ steps_per_second: rate, seconds_left: left }) {
    const parts = [rate == null ? "" : (rate >= 10 ? Math.round(rate) : rate.toFixed(1)) + " steps/s",
      left == null ? "" : formatSeconds(left) + " left"];
    return parts.filter(Boolean).join(" · ");
  }

  function showRun() {
    const { run, latest } = feed;
    const active = isActive();
    setText(part("title"), latest?.title ?? (run ? "…" : feed.loading ? "Loading …" : "Choose a run"));
    const owner = latest?.student ? "Run of \u2068" + latest.student + "\u2069 · " : "";
    part("run").title = latest ? latest.title + ", " + owner + latest.task : ""; // neither always has room
    setText(part("task"), latest ? owner + latest.task : "");
    part("dot").className = "dot " + (active ? "training" : latest?.status === "failed" ? "failed" : "");
    part("state").hidden = !latest;
    showProblem();
    part("stop").disabled = !latest?.stoppable;
    part("stop").hidden = Boolean(latest?.resumable || latest?.watched);
    part("resume").hidden = !latest?.resumable;
    if (!latest) return;
    const [first, result] = latest.status === "training" ? ["", ""] : statusParts(latest);
    if (part("status").textContent !== first + result) part("status").replaceChildren(make("span", { class: "first" }, first), result);
    part("status").title = first + result;
    part("progress").hidden = part("steps").hidden = part("rate").hidden = latest.status === "finished";
    const planned = latest.steps; // null if it is not known
    if (planned === null) part("progress").hidden = true;
    part("progress").max = Math.max(1, planned ?? latest.step);
    part("progress").value = latest.step;
    const steps = part("steps");
    if (steps.dataset.text !== latest.step + "/" + planned) {
      steps.dataset.text = latest.step + "/" + planned;
      const of = planned === null ? " steps" : " / " + planned.toLocaleString("en");
      steps.replaceChildren(latest.step.toLocaleString("en"), make("span", { class: "of" }, of));
    }
    setText(part("rate"), active ? rateText(latest) : "");
  }

  /** A run's message as a sentence, with what to do if it was stopped and the visitor can resume it. */
  function noticeOf({ message, status, resumable }) {
    const text = resumable && status === "stopped" ? message + "; press Resume to continue" : message;
    return text.replace(/^[a-z]+ /, (word) => word[0].toUpperCase() + word.slice(1));
  }

  /** A failure or a notice in the line under the bar, until the visitor closes it. */
  function showProblem() {
    const { status, message } = feed.latest ?? {};
    const text = feed.error || (status === "queued" || !message ? "" : noticeOf(feed.latest)); // the bar says the place in the queue
    if (text !== closed) closed = "";
    if (text && !closed) say(text, { lasting: false });
    else if (part("message").dataset.lasting !== "true") part("message").hidden = true;
  }

  function reportStatus() {
    const { run, latest } = feed;
    if (!latest) return void (knownStatus = null);
    // A short run that this page started may have ended before its first status arrives.
    const isChange = knownStatus === null ? run === startedRun && !isActive() : knownStatus !== latest.status;
    [knownStatus, startedRun] = [latest.status, null];
    if (isChange) trigger("status", { run, status: latest.status });
  }

  /** Close a run that was deleted in another tab, and say so: nothing of it can be asked for. */
  function leaveGone() {
    const { run, latest, gone: why } = feed;
    if (!why) return;
    props.value = { current: null };
    say("The run “" + (latest?.title ?? run) + "” " + why + ".", { action: CHOOSE });
    show();
    trigger("pick", { run: "" });
  }

  /** While the run trains, ask for a decode of the current input with its new weights. */
  function reportWeights() {
    const evaluated = feed.metrics.evaluations.step.at(-1) ?? null;
    const isOpen = DECODING_TABS.includes(document.body.dataset.tab);
    if (!isActive() || !isOpen || evaluated === decodedStep || Date.now() - decodedAt < WEIGHTS_MS) return;
    decodedStep = evaluated;
    decodedAt = Date.now();
    trigger("weights", { step: evaluated });
  }

  function pick(run) {
    props.value = { current: run }; // the value that Python receives
    part("message").dataset.lasting = "";
    show();
    trigger("pick", { run });
  }

  /** Show the new title, also where the last decode names the run. */
  function renamed() {
    follow(feed.run);
    trigger("weights", { step: decodedStep });
  }

  // ---- a press of Train without a connection ----

  function noteTrain(event) {
    if (!event.target.closest?.("#train")) return;
    inTab.remove(LOST);
    pressedTrain = performance.now();
  }

  /** Say, once the server is back, that a press of Train had no answer, if nothing trains here; it may have started a run. */
  function reportLostTrain() {
    const isGone = document.body.dataset.server === "gone";
    if (isGone && performance.now() - pressedTrain < LOST_MS) inTab.set(LOST, "yes");
    if (isGone || !feed.latest || isActive() || !inTab.get(LOST) || part("message").dataset.lasting === "true") return;
    say("The connection was lost when Train was pressed. Press it again, unless the new run is in the menu of runs.");
  }

  // ---- messages ----

  function say(text, { lasting = true, action = null } = {}) {
    part("message").hidden = false;
    part("message").dataset.lasting = String(lasting);
    setText(part("message-text"), text);
    const button = part("message-action");
    button.hidden = !action;
    if (action) setText(button, action.label);
    button.onclick = action?.run ?? null;
  }

  async function ask(name) {
    const { run } = feed;
    const answer = await callServer(server, name, { run });
    if (!answer || answer.error) say(answer?.error ?? "No answer from the server.");
    follow(feed.run);
  }

  // ---- menu of runs ----

  const gone = (run) => trigger("gone", { run });
  const CHOOSE = { label: "Choose a run", run: () => openMenu() };

  async function openMenu(action = "open") {
    if (menu) return menu[action](); // at once, so that a key that follows reaches it
    try {
      const [{ runMenu }] = await Promise.all([import("./run_menu.js"), laterStyles()]);
      menu ??= runMenu({ element, server, pick, gone, renamed });
      return menu[action]();
    } catch (error) {
      console.error(error);
      say("The menu of runs could not be loaded. Reload the page.");
    }
  }

  // ---- class ----

  /** Open the class, or with `joining` only if the visitor is in one or comes with its link; its script loads now. */
  async function openClass({ joining = false } = {}) {
    try {
      const board = await import("../class_board/class_board.js");
      await board.openClass({ element, server, pick, gone, joining });
    } catch (error) {
      console.error(error);
      say("The class could not be loaded. Reload the page.");
    }
  }

  // ---- theme ----

  function switchTheme() {
    const dark = document.body.classList.toggle("dark");
    inBrowser.set("attention-lab-theme", dark ? "dark" : "light");
    patchAddress({ __theme: dark ? "dark" : "light" });
  }

  // ---- values ----

  function show() {
    const { current = null, missing = null, why = "", unread = {}, used = [], loading = false, started = false, translator = null } = props.value ?? {};
    if (started) {
      pressedTrain = -Infinity;
      dropDrafts();
      startedRun = current;
    }
    if (translator) setTranslator(translator);
    setLoading(loading);
    if (current !== feed.run) {
      knownStatus = decodedStep = null;
      closed = "";
      if (feed.run) document.body.dataset.side = ""; // the charts of the new run, instead of the form for own pairs
      // A reload must find the run before its first decode; the interventions of another run do not belong to it
      patchAddress(feed.run ? { run: current, ablate: null, pattern: null } : { run: current });
    }
    if (started || (feed.run && current && current !== feed.run)) part("message").dataset.lasting = ""; // it is not about this run
    follow(current);
    if (missing) {
      say(why || "There is no run “" + missing + "” here, or it is not shared with you.",
        { action: CHOOSE });
    } else if (Object.keys(unread).length) {
      say("Not all of this link was used: " + Object.values(unread).join("; ") + ".");
    }
    patchAddress(Object.fromEntries([...used, ...(missing ? [] : Object.keys(unread))].map((name) => [name, null])));
  }

  const mark = part("mark");
  mark.append(...Array.from({ length: 16 }, (_, at) => make("i", { class: (at >> 2) + (at & 3) === 3 ? "on" : false })));
  part("run").addEventListener("click", () => openMenu("toggle"));
  part("stop").addEventListener("click", () => {
    part("stop").disabled = true;
    ask("stop");
  });
  part("resume").addEventListener("click", async () => {
    part("resume").disabled = true; // a second press would be refused, and the refusal would stay
    await ask("resume");
    part("resume").disabled = false;
  });
  part("message-close").addEventListener("click", () => {
    if (part("message").dataset.lasting !== "true") closed = part("message-text").textContent;
    part("message").hidden = true;
    part("message").dataset.lasting = "";
    inTab.remove(LOST);
  });
  new ResizeObserver(() => { // what stays below the bar stays below a notice, too
    document.documentElement.style.setProperty("--notice", part("message").offsetHeight + "px");
  }).observe(part("message"));
  part("class").addEventListener("click", () => openClass());
  if (readAddress().has("class") || inBrowser.get("attention-lab-class")) openClass({ joining: true });
  part("tour").addEventListener("click", startTour);
  part("menu-tour").addEventListener("click", () => {
    openMenu("toggle");
    startTour();
  });
  part("theme").addEventListener("click", switchTheme);
  startFeed(element, server);
  reportStillOpen(server);
  onFeed(() => {
    showRun();
    reportStatus();
    reportWeights();
    reportLostTrain();
    leaveGone();
  });
  document.addEventListener("click", noteTrain, true);
  show();
  watch("value", show);
}
