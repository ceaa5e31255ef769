// All runs, by task, to tick those that are to be compared. Ticking one puts runs of other tasks out of reach: they
// share no held-out inputs with it. Event: 'choose' {runs} whenever the visitor ticks.

const tasks = part("tasks");
let chosen = []; // names of the ticked runs, in the order of the list
let listed = []; // the tasks as the server last told them
let drawn = ""; // what the list was drawn from
let rows = []; // { box, names, task } of every tick box

const namesOf = (task) => task.groups.flatMap((group) => group.runs.map((run) => run.id));

/** Place of the task that the ticked runs are of; -1 while none is ticked. */
const chosenTask = () => listed.findIndex((task) => namesOf(task).some((name) => chosen.includes(name)));

function stateText(run) {
  if (!run.ready) return "no weights yet";
  const measured = run.exact_match == null ? "" : formatPercent(run.exact_match, 2);
  if (run.status === "finished") return measured || "finished";
  return run.status + " at " + run.step + (measured ? " · " + measured : "");
}

/** A tick box for one run, or for all seeds of a group. */
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
    return make("li", {}, makeRow(task, [run.id], run.id, stateText(run), group.about + "; seed " + run.seed, run.ready));
  }
  const ready = runs.filter((run) => run.ready).map((run) => run.id);
  return make("li", {},
    makeRow(task, ready, group.label, runs.length + " seeds", group.about, ready.length > 0),
    make("ul", { class: "runs" }, ...runs.map((run) => make("li", {},
      makeRow(task, [run.id], run.id, "seed " + run.seed + " · " + stateText(run), "", run.ready)))));
}

function drawList() {
  rows = [];
  tasks.replaceChildren(...listed.map((task) => make("section", { class: "task" },
    make("h3", {}, task.task),
    make("p", { class: "why quiet" }),
    make("ul", { class: "runs" }, ...task.groups.map((group) => makeGroup(task, group))))));
  showTicks();
}

function showTicks() {
  const own = chosenTask();
  listed.forEach((task, at) => {
    const section = tasks.children[at];
    const apart = own >= 0 && at !== own;
    section.classList.toggle("apart", apart);
    setText(section.querySelector(".why"), apart
      ? "Another task than the ticked runs': no held-out inputs in common."
      : namesOf(task).length > 1 ? "" : "Only one run: train another of this task to compare it with.");
    for (const row of rows.filter((each) => each.task === task)) {
      const ticked = row.names.filter((name) => chosen.includes(name)).length;
      row.box.checked = ticked === row.names.length;
      row.box.indeterminate = ticked > 0 && ticked < row.names.length;
      row.box.disabled = apart;
    }
  });
}

function tick(names, wanted) {
  const order = listed.flatMap(namesOf);
  const kept = chosen.filter((name) => !names.includes(name));
  chosen = [...kept, ...(wanted ? names : [])].sort((one, other) => order.indexOf(one) - order.indexOf(other));
  props.value = { chosen }; // so that Python, asking for the value, gets the visitor's choice
  keepInAddress();
  showTicks();
}

/** A reload or a copied link ticks the same runs again. */
function keepInAddress() {
  const query = new URLSearchParams(window.location.search);
  if (chosen.length) query.set("compare", chosen.join(","));
  else query.delete("compare");
  window.history.replaceState(window.history.state, "", "?" + query);
}

async function refresh() {
  const answer = await askServer("list_runs", {});
  setText(part("trouble"), answer ? "" : "connection lost, retrying");
  if (!answer) return 1000;
  part("empty").hidden = answer.tasks.length > 0;
  setText(part("empty"), "No runs yet. Train some of one task under Train, then compare them here.");
  const now = JSON.stringify(answer.tasks);
  if (now !== drawn) {
    const focused = rows.findIndex((row) => row.box === document.activeElement);
    drawn = now;
    listed = answer.tasks;
    drawList();
    rows[focused]?.box.focus();
  }
  return 2000;
}

function takeValue() {
  const { chosen: ticked = [], at_once: atOnce = false } = props.value ?? {};
  chosen = ticked;
  showTicks();
  if (!atOnce) return;
  props.value = { chosen }; // once is enough
  trigger("begin", {});
}

takeValue();
keepAsking(refresh);
watch("value", takeValue);
