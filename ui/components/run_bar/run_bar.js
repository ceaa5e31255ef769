// The row of runs: one radio chip a run, kept up to date by asking the server each second.
// Events: 'pick' {run} when the visitor chooses; 'status' {run, status} when the chosen run's status changes.

const chips = part("chips");
const trouble = part("trouble");
const groupName = uniqueName("run");
const chipOfRun = new Map();

let current = null; // id of the chosen run
let knownStatus = null; // its status as last seen (or as Python said); null: not seen yet
let pickTimer = 0;

// ---- words ----

/** "next", "2nd", "3rd", "11th" in line. */
function placeInLine(place) {
  if (place === 1) return "next in line";
  const teens = place % 100 >= 11 && place % 100 <= 13;
  return place + ((!teens && ["", "st", "nd", "rd"][place % 10]) || "th") + " in line";
}

/** What the chip says after the run's name. */
function stateText(run) {
  const reached = run.step + "/" + run.steps;
  const words = {
    queued: run.place ? "queued, " + placeInLine(run.place) : "queued",
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

/** Make the chips equal the list while touching only what differs, so that keyboard focus stays. */
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

/** Scroll the chosen chip into sight inside the bar, and only there: the page must not jump. */
function revealCurrent() {
  const chip = chipOfRun.get(current);
  if (!chip) return;
  const { offsetTop, offsetHeight } = chip.label;
  if (offsetTop < chips.scrollTop) chips.scrollTop = offsetTop;
  const hidden = offsetTop + offsetHeight - chips.scrollTop - chips.clientHeight;
  if (hidden > 0) chips.scrollTop += hidden;
}

// ---- choosing and listening ----

/** Arrow keys pass through several runs; only the one where they rest is loaded. */
function pick(id) {
  current = id;
  knownStatus = null;
  props.value = { current: id }; // so that Python, asking for the value, gets the visitor's choice
  clearTimeout(pickTimer);
  pickTimer = setTimeout(() => trigger("pick", { run: id }), 150);
}

function noticeStatus(runs) {
  const run = runs.find((each) => each.id === current);
  if (!run) return;
  const changed = knownStatus !== null && knownStatus !== run.status;
  knownStatus = run.status;
  if (changed) trigger("status", { run: run.id, status: run.status });
}

async function refresh() {
  const answer = await askServer("list_runs", {});
  if (!answer || !Array.isArray(answer.runs)) {
    setText(trouble, "connection lost, retrying");
    return 1000;
  }
  setText(trouble, answer.runs.length ? "" : "No runs yet. Train one below.");
  const before = chipOfRun.size;
  showRuns(answer.runs);
  showCurrent();
  if (chipOfRun.size !== before) revealCurrent();
  noticeStatus(answer.runs);
  return 1000;
}

function takeValue() {
  current = props.value?.current ?? null;
  knownStatus = props.value?.status ?? null;
  showCurrent();
  revealCurrent();
}

takeValue();
const refreshNow = keepAsking(refresh);
watch("value", () => {
  takeValue();
  refreshNow();
});
