// What the page's components ask for, in the form in which the program's server answers; see ui/components.

import { isElsewhere, isResumable, modelOf, rereadRuns, runs } from "./runs.js";
import { openLab } from "./model.js";
import { Problem } from "./problem.js";
import { inWords, sentenceOf, wordsOf } from "./subwords.js";

const POLL_MS = { training: 10, other: 2000 }; // between two questions of the page; an update makes the next one wait
const [BOS_TOKEN, EOS_TOKEN] = ["<BOS>", "<EOS>"];
const ELSEWHERE = "This run is training in another tab of this browser";

/** The figures that decide: those that the program has recorded, or exact match, which is measured here. */
function headlineOf({ headline, exact_match: value }) {
  return headline ?? (value == null ? [] : [{ measure: "exact_match", name: "exact match", value }]);
}

const statusOf = async (run) => ((await isElsewhere(run)) ? "training" : run.status);

/** The state of a run without its metrics. */
async function progressOf(run) {
  const status = await statusOf(run);
  const left = run.status === "training" && run.steps_per_second ? (run.steps - run.step) / run.steps_per_second : null;
  return {
    run: run.id, title: run.title, status, message: status === run.status ? run.message : ELSEWHERE, step: run.step, steps: run.steps,
    steps_per_second: run.steps_per_second ?? null, seconds_left: left, best_step: run.best_step, headline: headlineOf(run), queue_position: null, seconds_to_start: null,
  };
}

/** The rows of columns after a step. */
function rowsSince(columns, since) {
  const first = columns.step.findIndex((step) => step > since);
  const from = first === -1 ? columns.step.length : first;
  return { from: since + 1, width: 0, columns: Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column.slice(from)])) };
}

const metricsSince = (run, { since_step, since_evaluation }) =>
  ({ points: rowsSince(run.points, since_step), evaluations: rowsSince(run.evaluations, since_evaluation) });

/** The state of a run, with what the page does not have yet. */
export async function feedOf(run, request) {
  const { facts } = await openLab(run.lab);
  const latest = run.replay.at(-1);
  const known = request.known_snapshots ? request.since_snapshot : -1;
  const progress = await progressOf(run);
  return {
    ...progress, ...metricsSince(run, request),
    task: facts.task.summary, without_bleu: "", overfitting: "", shipped: run.shipped,
    preset: run.lab, trained_here: !run.shipped && run.status === "finished",
    stoppable: run.status === "training", resumable: isResumable(run) && progress.status === run.status,
    poll_ms: run.status === "training" || run.status === "stopping" ? POLL_MS.training : POLL_MS.other,
    snapshots: {
      steps: run.replay.map(({ step }) => step),
      masses: run.replay.filter((each) => each.step > known && each.attention_mass).map((each) => [each.step, each.attention_mass]),
      latest: latest && latest.step > known ? snapshotValue(facts, latest, request) : null,
    },
  };
}

/** The words that the pieces of an input and of its output make. */
const wordsIn = (source, tokens) => ({ source: wordsOf([BOS_TOKEN, ...source, EOS_TOKEN]), produced: wordsOf(tokens), read: wordsOf([BOS_TOKEN, ...tokens.slice(0, -1)]) });

/** A snapshot: the answers to all inputs, and the maps of one input. */
export function snapshotValue(facts, snapshot, { block = "", input = 0 }) {
  const index = Math.min(input, snapshot.outputs.length - 1);
  const { tokens, maps } = snapshot.outputs[index];
  const blocks = facts.blocks.filter((each) => maps[each.block]);
  const [layers, heads] = maps[facts.source_block].shape;
  const isSmall = layers * heads < 4;
  const shown = block in maps ? [block] : block === "all" || isSmall ? blocks.map((each) => each.block) : [facts.source_block];
  return {
    step: snapshot.step,
    answers: facts.snapshots.inputs.map((given, at) => ({
      source: given.source, expected: given.expected.length ? [...given.expected, EOS_TOKEN] : null, tokens: snapshot.outputs[at].tokens,
      ...(facts.subword_scores && { texts: inWords(facts, given.source, snapshot.outputs[at].tokens, given.expected).texts }),
    })),
    input: index,
    read: [BOS_TOKEN, ...tokens.slice(0, -1)],
    blocks: blocks.map((each) => ({ block: each.block, name: each.name, layers: maps[each.block].shape[0], columns: each.columns })),
    words: facts.subword_scores && wordsIn(facts.snapshots.inputs[index].source, tokens),
    maps: Object.fromEntries(shown.map((each) => [each, maps[each]])),
    scored_block: snapshot.attention_mass ? facts.source_block : null,
    marks: snapshot.marks ?? {},
    attention_mass: snapshot.attention_mass, uniform_mass: snapshot.uniform_mass, num_scored: snapshot.num_scored,
  };
}

/** The snapshot of a training step. */
export async function snapshotOf(run, request) {
  const { facts } = await openLab(run.lab);
  const found = run.replay.find(({ step }) => step === request.step);
  if (!found) throw new Problem("This run has no snapshot of step " + request.step.toLocaleString("en") + ".");
  return snapshotValue(facts, found, request);
}

/** The replay of a run: its metrics and snapshots after a step. */
export async function replayOf(run, request) {
  const { facts } = await openLab(run.lab);
  const last = run.replay.at(-1);
  return {
    ...await progressOf(run), ...metricsSince(run, request),
    saved_steps: run.replay.map(({ step }) => step),
    inputs: facts.snapshots.inputs.map(({ source, expected, gold_cells }) => ({
      source: [BOS_TOKEN, ...source, EOS_TOKEN], expected: expected.length ? [...expected, EOS_TOKEN] : null, gold_cells,
      ...(facts.subword_scores && { text: sentenceOf(source) }),
    })),
    blocks: facts.blocks,
    scored_block: last?.attention_mass ? facts.source_block : null,
    uniform_mass: last?.uniform_mass ?? null,
    scored_on: last ? "mean over " + last.num_scored + " fixed inputs" : "",
    snapshots: run.replay.filter(({ step }) => step > request.since).map(({ step, attention_mass, marks, outputs }) =>
      ({ step, attention_mass, marks: marks ?? {}, outputs: outputs.map((output, at) => withWords(facts, output, at)) })),
    weights_steps: run.replay.map(({ step }) => step).filter((step) => run.kept.has(step)),
  };
}

function withWords(facts, output, at) {
  const { source, expected } = facts.snapshots.inputs[at];
  return { ...output, ...inWords(facts, [BOS_TOKEN, ...source, EOS_TOKEN], output.tokens, expected) };
}

/** The list of runs, the latest first. */
export async function listRuns() {
  const listed = [];
  await rereadRuns().catch(() => {});
  for (const run of [...runs.values()].reverse()) {
    const { facts } = await openLab(run.lab);
    listed.push({
      id: run.id, title: run.title, preset: facts.preset, task: facts.task.summary, created: new Date(run.created).toISOString(), shared: false,
      status: await statusOf(run), shipped: run.shipped, step: run.step, steps: run.steps, headline: headlineOf(run), queue_position: null,
    });
  }
  return { runs: listed };
}

/** The parts of a run's model, and its size in words. */
export async function partsOf(run) {
  const { facts } = await openLab(run.lab);
  return { run: run.id, size: facts.model.size, parts: facts.model.parts };
}

/** What can be done with a run; its file is made when it is asked for. */
export async function actionsOf(run, fileOf) {
  const isOurs = run.status === "training" || run.status === "stopping";
  const isIdle = !isOurs && !(await isElsewhere(run));
  let file = null;
  if (isIdle) {
    await modelOf(run).then(async (model) => (file = await fileOf(run, model))).catch(() => {}); // without weights there is no file
  }
  return { run: run.id, title: run.title, ...file, package: null, shared: null, renamable: !run.shipped && (isOurs || isIdle), deletable: !run.shipped && isIdle };
}
