// All runs by task, with checkboxes. Selecting a run disables runs of other tasks, which have other held-out inputs.
// Event: 'begin', to compare the selected runs immediately: those of the address, or the first that can be compared.

import { patchAddress, readAddress } from "../../web/address.js";
import { make, setText, partsOf } from "../../web/dom.js";
import { formatResult } from "../../web/format.js";
import { openPreset } from "../../web/navigation.js";
import { afterTyping, leftOut } from "../../web/run_search.js";
import { callServer, pollWhileVisible } from "../../web/server.js";

const MAX_KEPT = 100; // chosen runs that are listed in any case, see PickerRequest
const SUGGESTED = 4; // runs compared when the tab opens

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);

  const tasks = part("tasks");
  let chosen = []; // names of the selected runs, in the order of the list
  let listed = []; // the tasks from the server
  let drawnFrom = ""; // the tasks as JSON
  let rows = []; // { box, names, task } of every checkbox
  let suggests = true; // until runs were selected
  let isOpened = false; // whether the runs that the address names are known

  const namesOf = (task) => task.groups.flatMap((group) => group.runs.map((run) => run.id));

  /** Index of the task of the selected runs; -1 without any. */
  const chosenTask = () => listed.findIndex((task) => namesOf(task).some((name) => chosen.includes(name)));

  function stateText(run) {
    if (!run.ready) return "no weights yet";
    const result = formatResult(run, 2);
    const measured = result && "validation " + result;
    if (run.status === "finished") return measured || "finished";
    return run.status + " at " + run.step.toLocaleString("en") + (measured ? " · " + measured : "");
  }

  /** A checkbox for one run or for all seeds of a group. */
  function makeRow(task, names, label, state, about, ready = true) {
    const box = make("input", { type: "checkbox", disabled: !ready, onchange: () => tick(names, box.checked) });
    if (ready) rows.push({ box, names, task });
    return make("label", { class: ready ? "run" : "run off" }, box,
      make("span", { class: "name" }, label), make("span", { class: "state" }, state),
      about ? make("span", { class: "about" }, about) : null);
  }

  function makeGroup(task, group) {
    const { runs } = group;
    if (runs.length === 1) {
      const [run] = runs;
      return make("li", {}, makeRow(task, [run.id], run.title, stateText(run), group.about + "; seed " + run.seed, run.ready));
    }
    const ready = runs.filter((run) => run.ready).map((run) => run.id);
    return make("li", {},
      makeRow(task, ready, group.label, runs.length + " seeds", group.about, ready.length > 0),
      make("ul", { class: "runs" }, ...runs.map((run) => make("li", {},
        makeRow(task, [run.id], run.title, "seed " + run.seed + " · " + stateText(run), "", run.ready)))));
  }

  function drawList() {
    rows = [];
    tasks.replaceChildren(...listed.map((task) => make("section", { class: "task" },
      make("h3", {}, task.task),
      make("p", { class: "why muted" }),
      make("ul", { class: "runs" }, ...task.groups.map((group) => makeGroup(task, group))),
      task.rivals.length ? make("div", { class: "tools rivals" }, ...task.rivals.map((name) =>
        make("button", { type: "button", onclick: () => openPreset(name) }, "Train " + name))) : null)));
    showSelection();
  }

  function showSelection() {
    const own = chosenTask();
    listed.forEach((task, at) => {
      const section = tasks.children[at];
      const isOtherTask = own >= 0 && at !== own;
      section.classList.toggle("other-task", isOtherTask);
      setText(section.querySelector(".why"), isOtherTask
        ? "A different task, or different settings of it, such as tokens. Only runs of the same task can be compared."
        : namesOf(task).length > 1 ? "" : "Only one run" + (part("find").hidden ? "" : " is listed") + ". A comparison needs another one of this task"
          + (task.rivals.length ? ", such as one of these presets:" : "."));
      for (const row of rows.filter((each) => each.task === task)) {
        const ticked = row.names.filter((name) => chosen.includes(name)).length;
        row.box.checked = ticked === row.names.length;
        row.box.indeterminate = ticked > 0 && ticked < row.names.length;
        row.box.disabled = isOtherTask && !row.box.checked && !row.box.indeterminate;
      }
    });
  }

  /** Select runs of one task, of the current run's if it has others, and compare them. */
  function suggest() {
    const ready = listed.map((task) => task.groups.flatMap((group) => group.runs).filter((run) => run.ready).map((run) => run.id))
      .filter((names) => names.length > 1);
    const run = readAddress().get("run");
    const names = ready.find((each) => each.includes(run)) ?? ready[0];
    if (!suggests || !isOpened || !names) return;
    const first = names.filter((name) => name !== run).slice(0, SUGGESTED - Number(names.includes(run)));
    tick(names.filter((name) => name === run || first.includes(name)), true);
    trigger("begin", {});
  }

  function tick(names, wanted) {
    suggests = false;
    const order = listed.flatMap(namesOf);
    const others = chosen.filter((name) => !names.includes(name));
    chosen = [...others, ...(wanted ? names : [])].sort((one, other) => order.indexOf(one) - order.indexOf(other));
    props.value = { chosen }; // the value that Python receives
    patchAddress({ compare: chosen.join(",") });
    showSelection();
  }

  async function refresh() {
    const search = part("search").value.trim();
    const answer = await callServer(server, "runs_by_task", { search, keep: chosen.slice(0, MAX_KEPT) });
    setText(part("error"), answer ? "" : "connection lost, retrying");
    if (!answer || search !== part("search").value.trim()) return 1000;
    const left = leftOut(answer, search);
    part("find").hidden = !left && !search; // as long as all runs are listed
    setText(part("unlisted"), left);
    part("empty").hidden = answer.tasks.length > 0;
    setText(part("empty"), search ? "No run matches." : "No runs yet. Train some on one task on the Train tab, then compare them here.");
    const now = JSON.stringify(answer.tasks);
    if (now !== drawnFrom) {
      const focused = rows.findIndex((row) => row.box === document.activeElement);
      drawnFrom = now;
      listed = answer.tasks;
      drawList();
      rows[focused]?.box.focus();
      suggest();
    }
    return 2000;
  }

  function applyValue() {
    const { chosen: ticked = [], start = null } = props.value ?? {};
    chosen = ticked;
    suggests = suggests && !chosen.length;
    isOpened ||= start !== null;
    showSelection();
    suggest();
    if (!start) return;
    props.value = { chosen }; // only once
    trigger("begin", {});
  }

  applyValue();
  afterTyping(part("search"), pollWhileVisible(element, refresh));
  watch("value", applyValue);
}
