// The training replay of one run: its metrics, and its attention snapshots, oldest first.

import { emptyHistory, heldRows, mergeHistory, nearestIndex } from "../../web/history.js";

const ENDED = ["finished", "failed", "stopped", "interrupted"];

/** The replay of a run (a name, or null) before anything is known about it. */
export const emptyReplay = (run) => ({
  run,
  metrics: emptyHistory(),
  snapshots: [],
  facts: {}, // common to all snapshots: inputs, blocks, scored_block, scored_on, uniform_mass
  weightsSteps: [], // steps of the snapshots with kept weights
  latest: null, // status, step, steps and title of the run
});

/** Whether a run does not train any more. */
export const hasEnded = (status) => ENDED.includes(status);

/** What to ask the server for: what the replay does not have yet. */
export const requestFor = ({ run, metrics, snapshots }) => ({
  run,
  since: snapshots.at(-1)?.step ?? -1,
  ...heldRows(metrics),
});

/** Add what the server answered and drop deleted snapshots; returns whether anything changed. */
export function applyUpdate(replay, update) {
  const { snapshots, latest } = replay;
  const merged = mergeHistory(replay.metrics, update);
  const saved = new Set(update.saved_steps);
  const kept = snapshots.filter((each) => saved.has(each.step));
  replay.snapshots = [...kept, ...update.snapshots.filter((each) => each.step > (kept.at(-1)?.step ?? -1))];
  const { inputs, blocks, scored_block, scored_on, uniform_mass } = update;
  replay.facts = { inputs, blocks, scored_block, scored_on, uniform_mass };
  replay.weightsSteps = update.weights_steps;
  replay.latest = { status: update.status, step: update.step, steps: update.steps, title: update.title, headline: update.headline,
    watched: update.watched };
  return merged.points || merged.evaluations || kept.length !== snapshots.length || replay.snapshots.length !== snapshots.length
    || latest?.status !== update.status || latest?.steps !== update.steps;
}

/** Index of the snapshot of a training step: the nearest one, or the latest if the step is null; -1 without any. */
export function snapshotAt({ snapshots }, step) {
  return step === null ? snapshots.length - 1 : nearestIndex(snapshots.map((each) => each.step), step);
}

/** The record of a fixed input in a snapshot, see maps.js; null without one. */
export function recordAt({ facts, snapshots }, at, input) {
  const index = Math.min(input, (facts.inputs?.length ?? 0) - 1);
  const snapshot = snapshots[at];
  if (!facts.inputs?.[index] || !facts.blocks.length || !snapshot) return null;
  return {
    ...facts, ...facts.inputs[index], ...snapshot.outputs[index],
    attention_mass: snapshot.attention_mass, marks: snapshot.marks, step: snapshot.step,
  };
}

/** Tokens, rows and columns of the largest map of a fixed input. */
export function reserveFor(replay, input, block) {
  const records = replay.snapshots.map((_, at) => recordAt(replay, at, input));
  const rows = Math.max(...records.map((each) => (block === "encoder" ? each.source : each.tokens).length));
  const columns = Math.max(...records.map((each) => each.maps[block].shape[3]));
  return { tokens: block === "encoder" ? [] : [...new Set(records.flatMap((each) => each.tokens))], rows, columns };
}

/** Why there is no map. */
export function emptyText({ facts, latest, snapshots }) {
  if (!latest) return "Loading the replay.";
  if (snapshots.length && facts.inputs?.length) {
    return latest.watched ? "This run has no attention maps; the line under the bar at the top says why." : "This model has no attention heads.";
  }
  if (snapshots.length) return "The attention maps of this model are too large to save at every evaluation. The charts above are complete.";
  if (!hasEnded(latest.status)) return "The replay starts with the first evaluation.";
  if (latest.status === "finished") return "This run was imported without the history of its training.";
  return "This run has no replay, because it was stopped before the first evaluation.";
}
