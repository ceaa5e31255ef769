// Runs of this browser and those that the site ships: what is known about each, and its training.

import { readJson } from "./files.js";
import { hold, isHeldElsewhere, isHeldHere, release } from "./locks.js";
import { Model, openLab, weightsOf } from "./model.js";
import { Problem } from "./problem.js";
import { loadRun, loadRuns, loadWeights, removeRun, saveRun } from "./store.js";
import { takeSnapshot, thinned } from "./snapshots.js";
import { Training } from "./training.js";
import { readWeights } from "./weights.js";

const FRAME_MS = 60; // least time from a snapshot to the next one that is taken to show progress
const SAVE_MS = 2000; // least time between two saves of a run that trains
const MAX_KEPT_WEIGHTS = 12; // training steps whose weights are kept for the arithmetic of cells, until the tab is closed
const COLUMNS = { points: ["step", "loss", "learning_rate", "gradient_norm"], evaluations: ["step", "loss", "token_accuracy", "exact_match"] };

export const forgotten = new Set(); // ids of runs that another tab has deleted
export const runs = new Map(); // by id, the latest last; other tabs of this browser may train, rename and delete them, too

const emptyColumns = (names) => Object.fromEntries(names.map((name) => [name, []]));

/** A run before its first update. */
function newRun({ id, title, lab, seed = 0, steps }) {
  return {
    id, title, lab, seed, steps, status: "training", message: "", created: Date.now(), step: 0, seconds: 0, best_step: null, exact_match: null,
    points: emptyColumns(COLUMNS.points), evaluations: emptyColumns(COLUMNS.evaluations), replay: [], shipped: false,
    best: null, // numbers of the best weights
    saved: null, // the state to continue from
    kept: new Map(), // training step → numbers
    stored: null, // when what is known of it was stored last; null if it is in this tab only
  };
}

/** Load the runs of the site and of this browser. */
export async function openRuns() {
  index = await readJson("labs/index.json");
  for (const name of [...index.runs].reverse()) runs.set(name, { ...newRun({ id: name, title: name, lab: name, steps: 0 }), status: "finished", shipped: true });
  try {
    await rereadRuns();
  } catch {
    storageProblem = "This browser does not keep data for this page, so runs are lost when the tab is closed. A run can be downloaded.";
  }
  return index;
}

let index = null; // of the site's labs
let storageProblem = "";

/** Take what is stored of a run, unless what is known of it is as new. */
function take(saved) {
  const known = runs.get(saved.id);
  const stored = saved.stored ?? 0;
  if (!index.labs.includes(saved.lab) || (known && known.stored >= stored)) return;
  const status = ["training", "stopping"].includes(saved.status) ? "interrupted" : saved.status;
  runs.set(saved.id, Object.assign(known ?? {}, newRun(saved), saved, { status, stored }));
}

/** Forget a run that another tab has deleted. */
function forget(id) {
  if (runs.delete(id)) forgotten.add(id);
}

const isShared = (run) => run.stored !== null && !isHeldHere(run.id); // other tabs may change it

/** Read all runs again, with what other tabs have changed. */
export async function rereadRuns() {
  const stored = await loadRuns();
  const ids = new Set(stored.map(({ id }) => id));
  for (const run of [...runs.values()]) if (isShared(run) && !ids.has(run.id)) forget(run.id);
  for (const saved of stored) if (!isHeldHere(saved.id)) take(saved);
}

async function reread({ id }) {
  const saved = await loadRun(id).catch(() => null);
  if (saved) take(saved);
  else if (saved === undefined) forget(id);
}

/** Whether another tab trains a run. */
export const isElsewhere = async (run) => isResumable(run) && isHeldElsewhere(run.id);

/** Change a run while no other tab does. */
export async function change(run, action) {
  const isOurs = isHeldHere(run.id); // it trains
  if (!isOurs) await holdRun(run);
  try {
    return await action();
  } finally {
    if (!isOurs) release(run.id);
  }
}

/** Hold a run for this tab, as it is now; throws a Problem while another tab holds it. */
async function holdRun(run) {
  if (!(await hold(run.id))) throw new Problem("“" + run.title + "” is training in another tab of this browser.");
  if (run.stored !== null) await reread(run);
}

/** The run of an id, with what the site ships of it; throws a Problem without one. */
export async function runOf(id) {
  if (runs.has(id) && isShared(runs.get(id))) await reread({ id });
  const run = runs.get(id);
  if (!run) throw new Problem("There is no run “" + String(id).slice(0, 60) + "” in this browser. It may have been trained in another one.");
  if (run.shipped && !run.isLoaded) {
    const recorded = await readJson("labs/" + run.lab + "/record.json");
    Object.assign(run, recorded, { isLoaded: true });
  }
  return run;
}

/** Whether a run, other than one of this id, has a title. */
export const isTitle = (title, id = null) => [...runs.values()].some((run) => run.title === title && run.id !== id);

/** A title with a number that is above those of all other runs with this stem, and at least the first. */
function numbered(stem, first) {
  const numbers = [...runs.values()].filter(({ title }) => title.startsWith(stem + " ")).map(({ title }) => title.slice(stem.length + 1));
  return stem + " " + Math.max(first, ...numbers.filter((each) => /^\d{1,9}$/.test(each)).map((each) => 1 + Number(each)));
}

/** The training step of a run's best weights, or its last while it has none. */
export const stepOf = (run) => run.best_step ?? run.step;

/** The model of a run: with its best weights, or with those of a training step. */
export async function modelOf(run, step = null) {
  const lab = await openLab(run.lab);
  if (run.shipped && !run.best) run.best = await readWeights(lab.facts);
  if (!run.best && runs.has(run.id)) Object.assign(run, await loadWeights(run.id));
  const numbers = step === null ? run.best : run.kept.get(step);
  if (!numbers) throw new Problem(step === null ? "This run has no weights yet: they are there after its first evaluation." : "The weights of step " + step.toLocaleString("en") + " were not kept.");
  return new Model(lab, weightsOf(lab.facts, numbers));
}

// ---- training ----

/** Let the worker read its messages. */
const turn = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resolve;
  port2.postMessage(null);
});

function checkIdle() {
  const busy = [...runs.values()].find((run) => run.status === "training" || run.status === "stopping");
  if (busy) throw new Problem("“" + busy.title + "” is training. Stop it, or wait until it has finished.");
}

/** Make a run of a preset and train it; returns the run at once. */
export async function startRun(preset, seed) {
  const { facts } = await openLab(preset);
  await rereadRuns().catch(() => {}); // their titles
  checkIdle();
  const id = preset + "-" + Date.now().toString(36);
  const run = newRun({ id, title: numbered(preset, 1), lab: preset, seed, steps: facts.training.steps });
  runs.set(id, run);
  await hold(id);
  train(run);
  return run;
}

export const isResumable = (run) => !run.shipped && runs.has(run.id) && ["stopped", "failed", "interrupted"].includes(run.status);

/** Continue a run that was stopped or interrupted. */
export async function resumeRun(run) {
  checkIdle();
  await holdRun(run);
  try {
    if (!isResumable(run)) return; // another tab has finished or deleted it meanwhile
    if (!run.saved) Object.assign(run, await loadWeights(run.id));
    if (!run.saved && run.step > 0) throw new Problem("This run cannot be continued: its state was not kept.");
    Object.assign(run, { status: "training", message: "" });
  } finally {
    if (run.status !== "training") release(run.id);
  }
  train(run);
}

export function stopRun(run) {
  if (run.status === "training") run.status = "stopping";
}

/** Train a run, which this tab holds until then. */
async function train(run) {
  await save(run); // its tab may be closed or reloaded while the model loads
  try {
    const lab = await openLab(run.lab);
    const training = await Training.begin(lab, { seed: run.seed, saved: run.saved });
    rewind(run, training.step);
    await follow(run, training);
    run.status = run.status === "stopping" ? "stopped" : "finished";
    run.saved = training.saved();
  } catch (error) {
    run.status = "failed";
    run.message = error instanceof Problem ? error.message : "The training failed: " + error.message;
    if (!(error instanceof Problem)) console.error(error);
  }
  await save(run);
  release(run.id);
}

/** Train until the last step, or until the run is stopped. */
async function follow(run, training) {
  let [lastFrame, lastSave] = [0, -Infinity]; // it is saved at once, after the first evaluation
  const started = performance.now();
  const seconds = run.seconds;
  const first = training.step;
  while (run.status === "training") {
    if (training.isEvaluationDue && run.evaluations.step.at(-1) !== training.step) {
      const { isBest, ...evaluation } = await training.evaluate();
      push(run.evaluations, evaluation);
      if (isBest) Object.assign(run, { best: training.saved().weights, best_step: training.step, exact_match: evaluation.exact_match });
      keepWeights(run, training);
      run.replay = thinned([...run.replay.filter((each) => each.step < training.step), await takeSnapshot(training.model, training.step)]);
      lastFrame = performance.now();
    }
    if (training.step >= training.steps) break;
    if (performance.now() - lastSave > SAVE_MS) {
      run.saved = training.saved();
      await save(run);
      lastSave = performance.now();
    }
    push(run.points, await training.next());
    run.step = training.step;
    run.seconds = seconds + (performance.now() - started) / 1000;
    run.steps_per_second = (training.step - first) / ((performance.now() - started) / 1000);
    if (performance.now() - lastFrame > FRAME_MS && !training.isEvaluationDue) {
      run.replay = thinned([...run.replay, await takeSnapshot(training.model, training.step)]);
      lastFrame = performance.now();
    }
    await turn();
  }
}

/** Forget what was recorded after a step, from which the training continues. */
function rewind(run, step) {
  for (const columns of [run.points, run.evaluations]) {
    const kept = columns.step.filter((each) => each <= step).length;
    for (const column of Object.values(columns)) column.length = kept;
  }
  run.replay = run.replay.filter((each) => each.step <= step);
  run.step = step;
}

function push(columns, row) {
  for (const [name, column] of Object.entries(columns)) column.push(row[name]);
}

function keepWeights(run, training) {
  run.kept.set(training.step, training.saved().weights);
  if (run.kept.size <= MAX_KEPT_WEIGHTS) return;
  const steps = [...run.kept.keys()];
  for (const [at, step] of steps.entries()) if (at % 2 && at < steps.length - 1) run.kept.delete(step);
}

// ---- keeping ----

/** Save a run in this browser; if it has no room left, the run says so. */
export async function save(run) {
  if (run.shipped || !runs.has(run.id)) return;
  try {
    const stored = Date.now();
    await saveRun({ ...run, stored });
    run.stored = stored;
    storageProblem = "";
  } catch (error) {
    storageProblem = "This browser cannot keep the run (" + (error.name === "QuotaExceededError" ? "its storage for this page is full" : error.message)
      + "). It is lost when this tab is closed; download it, or delete other runs.";
  }
  run.message = run.status === "failed" ? run.message : storageProblem;
}

export async function deleteRun(run) {
  runs.delete(run.id);
  await removeRun(run.id);
}

/** Add a run that was read from a file. */
export async function addRun(facts) {
  await rereadRuns().catch(() => {}); // their titles
  const title = isTitle(facts.title) ? numbered(facts.title.replace(/ \d+$/, ""), 2) : facts.title;
  const run = { ...newRun(facts), ...facts, title };
  runs.set(run.id, run);
  await save(run);
  return run;
}
