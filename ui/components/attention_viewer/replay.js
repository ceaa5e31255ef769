// The training replay: fetches a run's attention snapshots and plays them in order.

const ENDED = ["finished", "failed", "stopped", "interrupted"];
const SNAPSHOT_MS = [120, 400]; // per snapshot: shortest, longest
const REPLAY_MS = 10000; // for all snapshots, about
const slider = part("step");

let run = null; // the replayed run
let metrics = emptyHistory(); // its metrics
let snapshots = []; // oldest first
let facts = {}; // common to all snapshots: inputs, blocks, scored_block, uniform_mass
let latest = null; // status, step and steps of the run
let shown = -1; // index of the displayed snapshot
let replayTimer = 0;

function followRun(name) {
  if (name === run) return;
  run = name;
  metrics = emptyHistory();
  snapshots = [];
  facts = {};
  latest = null;
  stopReplay();
}

// ---- polling ----

async function refresh() {
  if (selected.mode !== "replay" || run === null) return 300;
  const requested = run;
  const update = await callServer("replay", {
    run,
    since: snapshots.at(-1)?.step ?? -1,
    since_step: lastStep(metrics.points),
    since_evaluation: lastStep(metrics.evaluations),
  });
  if (requested !== run) return 0; // another run was selected meanwhile
  setText(part("replay-message"), update?.run === run ? "" : update?.error ?? "connection lost, retrying");
  if (update?.run !== run) return 1000;
  const { status, steps } = latest ?? {};
  if (applyUpdate(update) || status !== update.status || steps !== update.steps) showView();
  return ENDED.includes(update.status) ? 2000 : 1000;
}

/** Add new snapshots and drop deleted ones; returns whether anything changed. */
function applyUpdate(update) {
  const before = snapshots.length;
  if (update.restart) metrics = emptyHistory();
  const added = appendRows(metrics.points, update.points) + appendRows(metrics.evaluations, update.evaluations);
  const saved = new Set(update.saved_steps);
  snapshots = snapshots.filter((each) => saved.has(each.step));
  const dropped = before - snapshots.length;
  snapshots.push(...update.snapshots.filter((each) => each.step > (snapshots.at(-1)?.step ?? -1)));
  const { inputs, blocks, scored_block, scored_on, uniform_mass } = update;
  facts = { inputs, blocks, scored_block, scored_on, uniform_mass };
  latest = { status: update.status, step: update.step, steps: update.steps };
  return added > 0 || dropped > 0 || snapshots.length !== before;
}

// ---- display ----

/** Find the snapshot of the selected step: the latest, or the nearest one. */
function findSnapshot() {
  shown = selected.step === null ? snapshots.length - 1 : nearestIndex(snapshots.map((each) => each.step), selected.step);
}

/** The record of the selected fixed input in a snapshot; null without one. */
function recordAt(at) {
  const index = Math.min(selected.input, (facts.inputs?.length ?? 0) - 1);
  const input = facts.inputs?.[index];
  const snapshot = snapshots[at];
  if (!input || !snapshot) return null;
  return { ...facts, ...input, ...snapshot.outputs[index], attention_mass: snapshot.attention_mass, step: snapshot.step };
}

/** Tokens, rows and columns of the largest map of the selected input. */
function reserveFor(block) {
  const record = snapshots.map((_, at) => recordAt(at));
  const rows = Math.max(...record.map((each) => (block === "encoder" ? each.source : each.tokens).length));
  const columns = Math.max(...record.map((each) => each.maps[block].shape[3]));
  return { tokens: block === "encoder" ? [] : [...new Set(record.flatMap((each) => each.tokens))], rows, columns };
}

/** Why there is no map. */
function replayEmptyText() {
  if (!latest) return "Loading the replay.";
  if (snapshots.length) return "The attention maps of this model are too large to save at every evaluation. The charts above are complete.";
  if (!ENDED.includes(latest.status)) return "The replay starts with the first evaluation.";
  return "This run has no replay, because it was stopped before the first evaluation.";
}

function showReplay() {
  part("replay").hidden = selected.mode !== "replay" || snapshots.length === 0;
  if (part("replay").hidden) return;
  const inputs = facts.inputs.map(({ source }, number) => [number, source.slice(1, -1).map(visibleToken).join(" ")]);
  part("inputs").hidden = inputs.length < 2;
  showChoice("inputs", inputs, Math.min(selected.input, inputs.length - 1), (number) => select({ input: Number(number) }));
  const { step } = snapshots[shown];
  const when = "step " + step + " of " + latest.steps;
  slider.max = snapshots.length - 1;
  slider.value = shown;
  slider.setAttribute("aria-valuetext", when);
  setText(part("when"), when);
  const follows = selected.step === null ? "Showing the latest step." : "Training continues. Select the last step to follow it.";
  setText(part("follow-note"), ENDED.includes(latest.status) ? "" : follows);
  setText(part("play"), replayTimer ? "❚❚ Pause" : "▶ Play");
  showFigures();
}

// ---- navigation ----

/** Show a snapshot; the last one stays the latest while training continues. */
function showSnapshot(at) {
  selected.step = at >= snapshots.length - 1 ? null : snapshots[Math.max(0, at)].step;
  endPlayback();
  showView();
}

function jumpTo(at) {
  stopReplay();
  if (at >= 0) showSnapshot(at);
}

function stopReplay() {
  clearTimeout(replayTimer);
  replayTimer = 0;
}

function replayNext() {
  const isVisible = element.isConnected && element.offsetParent !== null;
  if (!isVisible || shown >= snapshots.length - 1) {
    stopReplay();
    return showView();
  }
  const [fast, slow] = SNAPSHOT_MS;
  replayTimer = setTimeout(replayNext, Math.max(fast, Math.min(slow, REPLAY_MS / snapshots.length)));
  showSnapshot(shown + 1);
}

function toggleReplay() {
  if (replayTimer) {
    stopReplay();
    return showView();
  }
  if (shown >= snapshots.length - 1) showSnapshot(0);
  replayTimer = setTimeout(replayNext, SNAPSHOT_MS[1]);
  showView();
}

slider.addEventListener("input", () => jumpTo(Number(slider.value)));
part("play").addEventListener("click", toggleReplay);
