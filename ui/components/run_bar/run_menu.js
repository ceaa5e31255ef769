// The menu of runs: search and choose one, and rename, download, share or delete the current one.

import { make, partsOf, setText } from "../../web/dom.js";
import { formatResult } from "../../web/format.js";
import { feed } from "../../web/run_feed.js";
import { afterTyping, leftOut } from "../../web/run_search.js";
import { callServer } from "../../web/server.js";

const REFRESH_MS = 1000;
const MAX_TITLE = 60; // characters, see core/runs/names.py

/** { open, toggle }: the menu in an element of the bar. */
export function runMenu({ element, server, pick, gone, renamed }) {
  const part = partsOf(element);
  let runs = []; // those that match what the server was asked for last, the latest first
  let answered = ""; // what that was
  let current = {}; // what can be done with the current run
  let timer = 0;

  // ---- the list ----

  function stateText(run) {
    const words = { queued: "queued", training: "training " + run.step.toLocaleString("en") + (run.steps ? " / " + run.steps.toLocaleString("en") : ""), stopping: "stopping",
      stopped: "stopped at " + run.step.toLocaleString("en"), interrupted: "interrupted at " + run.step.toLocaleString("en"), failed: "failed",
      finished: formatResult(run) || (run.step ? "finished" : "imported") };
    return (run.shipped ? "example · " : run.shared ? "shared · " : "") + (words[run.status] ?? run.status);
  }

  const wanted = () => ({ search: part("search").value.trim(), task: part("tasks").value });

  /** As the server does it, which knows of more runs: what is typed narrows the list at once. */
  function matches(run) {
    const { search, task } = wanted();
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const text = [run.id, run.title, run.task, run.preset, run.status].join(" ").toLowerCase();
    return words.every((word) => text.includes(word)) && (!task || run.task === task);
  }

  function makeItem(run) {
    const active = ["queued", "training", "stopping"].includes(run.status);
    return make("li", {}, make("button", {
      type: "button", class: "item", "data-run": run.id, "aria-current": String(run.id === feed.run),
      onclick: () => { close(); pick(run.id); },
    },
    make("span", { class: active ? "dot training" : run.status === "failed" ? "dot failed" : "dot", "aria-hidden": "true" }),
    make("span", { class: "name" }, run.title), make("span", { class: "how" }, stateText(run)),
    make("span", { class: "what" }, run.task)));
  }

  function showList() {
    const shown = runs.filter(matches);
    const focused = document.activeElement?.dataset?.run;
    part("list").replaceChildren(...shown.map(makeItem));
    if (focused) [...part("list").querySelectorAll("button")].find((each) => each.dataset.run === focused)?.focus();
    part("none").hidden = shown.length > 0;
    const { search, task } = wanted();
    const isAnswered = answered === JSON.stringify(wanted());
    setText(part("none"), !isAnswered ? "Searching …" : search || task ? "No run matches." : "No runs yet. Choose a preset and press Train.");
    const select = part("tasks");
    const known = [...select.options].map((option) => option.value).filter(Boolean);
    const tasks = [...new Set([...known, ...runs.map((run) => run.task)])]; // also those of runs that do not match now
    select.hidden = tasks.length < 2;
    if (!select.options.length || tasks.length > known.length) {
      select.replaceChildren(make("option", { value: "" }, "All tasks"), ...tasks.map((each) => make("option", { value: each }, each)));
      select.value = task;
    }
  }

  const statusOfCurrent = () => runs.find((run) => run.id === feed.run)?.status;

  async function refresh() {
    clearTimeout(timer);
    const asked = wanted();
    const answer = await callServer(server, "list_runs", asked);
    if (part("menu").hidden) return;
    clearTimeout(timer); // of another request, begun meanwhile
    if (Array.isArray(answer?.runs)) {
      const before = answered + JSON.stringify(runs);
      const status = statusOfCurrent();
      runs = answer.runs;
      answered = JSON.stringify(asked);
      const left = leftOut(answer, asked.search || asked.task);
      part("unlisted").hidden = !left;
      setText(part("unlisted"), left + (answer.unsearched ? " To open one of them, add ?run= and its name to the address of this page." : ""));
      if (statusOfCurrent() !== status) loadActions(); // a run that has ended can be downloaded and deleted
      if (answered + JSON.stringify(runs) !== before) showList();
    }
    timer = setTimeout(refresh, REFRESH_MS);
  }

  // ---- the current run ----

  function showActions(answer) {
    current = answer ?? {};
    part("current").hidden = !current.run;
    if (!current.run) return;
    part("rename").hidden = !current.renamable;
    if (document.activeElement !== part("rename-input")) part("rename-input").value = current.title;
    showRule();
    setText(part("about"), [current.renamable ? "" : current.title, feed.latest?.task].filter(Boolean).join(" · "));
    for (const name of ["file", "package"]) {
      part(name).hidden = !current[name];
      if (current[name]) part(name).setAttribute("href", current[name]);
      if (current[name + "_name"]) part(name).setAttribute("download", current[name + "_name"]);
    }
    part("share").hidden = current.shared == null;
    setText(part("share"), current.shared ? "Stop sharing" : "Share by link");
    part("copy").hidden = current.shared === false;
    part("delete").hidden = !current.deletable;
    part("question").hidden = true;
  }

  /** Call a server function about the current run; its answer is shown, an error is explained here. */
  async function request(name, argument, outcome) {
    const { run } = feed;
    const answer = await callServer(server, name, { run, ...argument });
    if (run !== feed.run) return null;
    if (!answer || answer.error) {
      setText(part("outcome"), answer?.error ?? "No answer from the server.");
      return null;
    }
    setText(part("outcome"), outcome);
    return answer;
  }

  async function loadActions() {
    if (feed.run === null) return showActions(null);
    const answer = await callServer(server, "actions", { run: feed.run });
    if (answer?.run === feed.run) showActions(answer);
  }

  /** How long a name may be, in red where the typed one is longer; nothing is cut off. */
  function showRule() {
    const { length } = [...part("rename-input").value.trim()];
    const isTooLong = length > MAX_TITLE;
    part("rename-rule").classList.toggle("bad", isTooLong);
    setText(part("rename-rule"), "At most " + MAX_TITLE + " characters" + (isTooLong ? "; this has " + length : ""));
  }

  async function renameRun(event) {
    event.preventDefault();
    const title = part("rename-input").value;
    if ([...title.trim()].length > MAX_TITLE) return; // the rule is in red
    const answer = await request("rename", { title }, "Renamed.");
    if (!answer) return;
    if (!title.trim()) setText(part("outcome"), "The run has its first name again.");
    part("rename-input").blur();
    showActions(answer);
    renamed();
    refresh();
  }

  async function shareRun() {
    const shared = !current.shared;
    const answer = await request("share", { shared }, shared ? "Everyone with the link can now see this run." : "Only you can see this run now.");
    if (answer) showActions(answer);
  }

  async function copyLink() {
    const link = new URL(window.location.href);
    link.search = "?" + new URLSearchParams({ run: current.run });
    try {
      await navigator.clipboard.writeText(link.href);
      setText(part("outcome"), "Link copied.");
    } catch {
      setText(part("outcome"), link.href);
    }
  }

  function askToDelete(asking) {
    part("question").hidden = !asking;
    part("delete").hidden = asking;
    setText(part("question-text"), "Delete " + current.title + " and all its files?");
    part(asking ? "no" : "delete").focus();
  }

  async function deleteRun() {
    const { run } = current;
    if (!(await request("delete", {}, "Deleted."))) return;
    close();
    gone(run);
  }

  // ---- open and close ----

  function open() {
    part("menu").hidden = false;
    part("run").setAttribute("aria-expanded", "true");
    setText(part("outcome"), "");
    part("current").hidden = true;
    showList();
    loadActions();
    refresh();
    part("search").focus({ preventScroll: true });
    document.addEventListener("pointerdown", closeOutside, true);
  }

  function close({ focus = false } = {}) {
    part("menu").hidden = true;
    part("run").setAttribute("aria-expanded", "false");
    clearTimeout(timer);
    document.removeEventListener("pointerdown", closeOutside, true);
    if (focus) part("run").focus();
  }

  function closeOutside(event) {
    if (!part("menu").contains(event.target) && !part("run").contains(event.target)) close();
  }

  /** Up and down move through the runs, Escape closes. */
  function onKey(event) {
    if (event.key === "Escape") return close({ focus: true });
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || event.target === part("rename-input") || event.target === part("tasks")) return undefined;
    const items = [...part("list").querySelectorAll("button")];
    const at = items.indexOf(document.activeElement) + by;
    (items[at] ?? part("search")).focus();
    return event.preventDefault();
  }

  part("menu").addEventListener("keydown", onKey);
  part("search").addEventListener("input", showList);
  afterTyping(part("search"), refresh);
  part("tasks").addEventListener("change", () => {
    showList();
    refresh();
  });
  part("rename-input").addEventListener("input", showRule);
  part("rename").addEventListener("submit", renameRun);
  part("share").addEventListener("click", shareRun);
  part("copy").addEventListener("click", copyLink);
  part("delete").addEventListener("click", () => askToDelete(true));
  part("no").addEventListener("click", () => askToDelete(false));
  part("yes").addEventListener("click", deleteRun);
  return { open, toggle: () => (part("menu").hidden ? open() : close()) };
}
