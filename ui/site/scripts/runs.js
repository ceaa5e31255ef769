// Runs of this browser and those that the site ships: what is known about each, and its training.

import { readJson } from "./files.js";
import { Model, openLab, weightsOf } from "./model.js";
import { Problem } from "./problem.js";
import { loadRuns, loadWeights, removeRun, saveRun } from "./store.js";
import { takeSnapshot, thinned } from "./snapshots.js";
import { Training } from "./training.js";
import { readWeights } from "./weights.js";

const FRAME_MS = 60; // least time from a snapshot to the next one that is taken to show progress
const SAVE_MS = 2000; // least time between two saves of a run that trains
const MAX_KEPT_WEIGHTS = 12; // training steps whose weights are kept for the arithmetic of cells, until the tab is closed
const COLUMNS = { points: ["step", "loss", "learning_rate", "gradient_norm"], evaluations: ["step", "loss", "token_accuracy", "exact_match"] };

export const runs = new Map(); // by id, the latest last

const emptyColumns = (names) => Object.fromEntries(names.map((name) => [name, []]));

/** A run before its first update. */
function newRun({ id, title, lab, seed = 0, steps }) {
  return {
    id, title, lab, seed, steps, status: "training", message: "", created: Date.now(), step: 0, seconds: 0, best_step: null, exact_match: null,
    points: emptyColumns(COLUMNS.points), evaluations: emptyColumns(COLUMNS.evaluations), replay: [], shipped: false,
    best: null, // numbers of the best weights
    saved: null, // the state to continue from
    kept: new Map(), // training step → numbers
  };
}

/** Load the runs of the site and of this browser. */
export async function openRuns() {
  const index = await readJson("labs/index.json");
  for (const name of [...index.runs].reverse()) runs.set(name, { ...newRun({ id: name, title: name, lab: name, steps: 0 }), status: "finished", shipped: true });
  try {
    for (const saved of await loadRuns()) {
      const isKnown = index.labs.includes(saved.lab);
      if (isKnown) runs.set(saved.id, { ...newRun(saved), ...saved, status: saved.status === "training" ? "interrupted" : saved.status });
    }
  } catch {
    storageProblem = "This browser does not keep data for this page, so runs are lost when the tab is closed. A run can be downloaded.";
  }
  return index;
}

let storageProblem = "";

/** The run of an id, with what the site ships of it; throws a Problem without one. */
export async function runOf(id) {
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
  checkIdle();
  const id = preset + "-" + Date.now().toString(36);
  const run = newRun({ id, title: numbered(preset, 1), lab: preset, seed, steps: facts.training.steps });
  runs.set(id, run);
  train(run);
  return run;
}

/** Continue a run that was stopped or interrupted. */
export async function resumeRun(run) {
  checkIdle();
  if (!run.saved) Object.assign(run, await loadWeights(run.id));
  if (!run.saved) throw new Problem("This run cannot be continued: its state was not kept.");
  Object.assign(run, { status: "training", message: "" });
  train(run);
}

export function stopRun(run) {
  if (run.status === "training") run.status = "stopping";
}

async function train(run) {
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
}

/** Train until the last step, or until the run is stopped. */
async function follow(run, training) {
  let [lastFrame, lastSave] = [0, performance.now()];
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
      if (performance.now() - lastSave > SAVE_MS) {
        run.saved = training.saved();
        await save(run);
        lastSave = performance.now();
      }
    }
    if (training.step >= training.steps) break;
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
    await saveRun(run);
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
  const title = isTitle(facts.title) ? numbered(facts.title.replace(/ \d+$/, ""), 2) : facts.title;
  const run = { ...newRun(facts), ...facts, title };
  runs.set(run.id, run);
  await save(run);
  return run;
}
