// All runs as radio chips, updated every second.
// Events: 'pick' {run} when the visitor selects a run; 'status' {run, status} when the status of the selected run changes.

const chips = part("chips");
const error = part("error");
const groupName = uniqueName("run");
const chipOfRun = new Map();

let current = null; // id of the selected run
let knownStatus = null; // its last known status; null: unknown
let pickTimer = 0;

// ---- texts ----

/** "next", "2nd", "3rd", "11th" in the queue. */
function queueText(position) {
  if (position === 1) return "next in the queue";
  const teens = position % 100 >= 11 && position % 100 <= 13;
  return position + ((!teens && ["", "st", "nd", "rd"][position % 10]) || "th") + " in the queue";
}

/** The text after the run's name. */
function stateText(run) {
  const reached = run.step + "/" + run.steps;
  const words = {
    queued: run.queue_position ? "queued, " + queueText(run.queue_position) : "queued",
    training: "training " + reached,
    stopping: "stopping at " + reached,
    stopped: "stopped at " + reached,
    interrupted: "interrupted at " + reached,
    failed: "failed",
    finished: run.exact_match == null ? "finished" : formatPercent(run.exact_match, 2),
  };
  return "· " + (run.shipped ? "shipped · " : run.shared ? "shared · " : "") + (words[run.status] || run.status);
}

// ---- chips ----

function makeChip(run) {
  const chip = {
    radio: make("input", { type: "radio", name: groupName, value: run.id, onchange: () => pick(run.id) }),
    name: make("span", { class: "name" }, run.label),
    state: make("span", { class: "state" }),
    line: make("span", { class: "line", hidden: true }),
  };
  chip.label = make("label", { class: "chip", title: "preset " + run.preset },
    chip.radio, chip.name, chip.state, chip.line);
  return chip;
}

function updateChip(chip, run) {
  setText(chip.name, run.label);
  setText(chip.state, stateText(run));
  const moving = run.status === "training" || run.status === "stopping";
  chip.line.hidden = !moving;
  if (moving) chip.line.style.width = (100 * run.step) / Math.max(1, run.steps) + "%";
}

/** Update the chips; only those that differ are touched, so that the keyboard focus stays. */
function showRuns(runs) {
  const listed = new Set(runs.map((run) => run.id));
  for (const [id, chip] of chipOfRun) {
    if (listed.has(id)) continue;
    chip.label.remove();
    chipOfRun.delete(id);
  }
  const focused = document.activeElement;
  let next = chips.firstChild;
  for (const run of runs) {
    if (!chipOfRun.has(run.id)) chipOfRun.set(run.id, makeChip(run));
    const chip = chipOfRun.get(run.id);
    updateChip(chip, run);
    if (chip.label === next) next = next.nextSibling;
    else chips.insertBefore(chip.label, next);
  }
  if (focused !== document.activeElement && chips.contains(focused)) focused.focus();
}

function showCurrent() {
  for (const [id, chip] of chipOfRun) chip.radio.checked = id === current;
}

/** Scroll the selected chip into view inside the bar, without scrolling the page. */
function scrollToCurrent() {
  const chip = chipOfRun.get(current);
  if (!chip) return;
  const { offsetTop, offsetHeight } = chip.label;
  if (offsetTop < chips.scrollTop) chips.scrollTop = offsetTop;
  const hidden = offsetTop + offsetHeight - chips.scrollTop - chips.clientHeight;
  if (hidden > 0) chips.scrollTop += hidden;
}

// ---- selection and polling ----

/** Select a run after a moment: arrow keys pass through several. */
function pick(id) {
  current = id;
  knownStatus = null;
  props.value = { current: id }; // the value that Python receives
  clearTimeout(pickTimer);
  pickTimer = setTimeout(() => trigger("pick", { run: id }), 150);
}

function reportStatus(runs) {
  const run = runs.find((each) => each.id === current);
  if (!run) return;
  const changed = knownStatus !== null && knownStatus !== run.status;
  knownStatus = run.status;
  if (changed) trigger("status", { run: run.id, status: run.status });
}

async function refresh() {
  const answer = await callServer("list_runs", {});
  if (!answer || !Array.isArray(answer.runs)) {
    setText(error, "connection lost, retrying");
    return 1000;
  }
  setText(error, answer.runs.length ? "" : "No runs yet. Train one on the Train tab.");
  const before = chipOfRun.size;
  showRuns(answer.runs);
  showCurrent();
  if (chipOfRun.size !== before) scrollToCurrent();
  reportStatus(answer.runs);
  return 1000;
}

function applyValue() {
  current = props.value?.current ?? null;
  knownStatus = props.value?.status ?? null;
  showCurrent();
  scrollToCurrent();
}

applyValue();
const refreshNow = pollWhileVisible(refresh);
watch("value", () => {
  applyValue();
  refreshNow();
});
