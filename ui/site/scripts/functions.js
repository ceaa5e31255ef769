// The functions that stand in for the server. Through a port, they answer { id, name, argument } with { id, answer }, and
// report progress in between with { id, progress }.

import { cellOf, partOf } from "./cell.js";
import { answerValue, comparisonValue, decodeText, recordOf, thumbnailsValue, viewerValue } from "./decoding.js";
import { useEmbedded } from "./files.js";
import { startRuntime } from "./graph.js";
import { lessonFunctions } from "./lessons.js";
import { openLab } from "./model.js";
import { Problem } from "./problem.js";
import { actionsOf, feedOf, listRuns, partsOf, replayOf, snapshotOf } from "./replies.js";
import { readRunFile, writeRunFile } from "./run_file.js";
import { addRun, change, deleteRun, forgotten, isTitle, modelOf, openRuns, resumeRun, runOf, save, startRun, stepOf, stopRun } from "./runs.js";
import { readInput, sentencesOf } from "./tasks.js";
import { strip, stripEnd } from "./text.js";
import { countExact, readPairs } from "./training.js";
import { isRounded } from "./weights.js";

const MAX_TITLE = 60; // characters
const ROWS = 128; // measured together
const files = new Map(); // run → the address of its file

/** Functions that the page calls, by name; those of the components have the names of the server's. */
export const functions = {
  async open({ embedded }) {
    if (embedded) useEmbedded(embedded);
    return openRuns();
  },
  /** Download and start the runtime; progress is the number of bytes. */
  warm: async (_, report) => void (await startRuntime(report)),
  /** Open the graph of a preset's update, which takes a second, so that its training begins at once. */
  prepare: async ({ preset }) => void (await (await openLab(preset)).graph("step")),

  // ---- the run bar
  async feed(request) {
    const run = await runOf(request.run).catch((error) => {
      if (!forgotten.has(request.run)) throw error;
    });
    return run ? feedOf(run, request) : { gone: "was deleted in another tab" };
  },
  snapshot: async (request) => snapshotOf(await runOf(request.run), request),
  list_runs: listRuns,
  actions: async ({ run }) => actionsOf(await runOf(run), fileOf),
  async stop({ run }) {
    stopRun(await runOf(run));
    return { run };
  },
  async resume({ run }) {
    await resumeRun(await runOf(run));
    return { run };
  },
  async rename({ run: id, title }) {
    const run = await runOf(id);
    const name = title.trim();
    if ([...name].length > MAX_TITLE) throw new Problem("A name has at most " + MAX_TITLE + " characters.");
    if (isTitle(name, id)) throw new Problem("Another run has the title “" + name + "”; choose another one.");
    await change(run, async () => {
      if (name) run.title = name;
      await save(run);
    });
    return functions.actions({ run: id });
  },
  async delete({ run }) {
    const deleted = await runOf(run);
    await change(deleted, () => deleteRun(deleted));
    return { run: null };
  },
  still_open: async () => ({}),
  health: async ({ run }) => ({ run, steps: [], added: [], series: {}, by_layer: false }), // not measured here

  // ---- the viewer
  replay: async (request) => replayOf(await runOf(request.run), request),
  parts: async ({ run }) => partsOf(await runOf(run)),
  async part(request) {
    return partOf(await modelOf(await runOf(request.run), request.training_step ?? null), request);
  },
  async cell(request) {
    const run = await runOf(request.run);
    return cellOf(await modelOf(run, request.training_step ?? null), request, request.training_step ?? stepOf(run));
  },

  // ---- the page itself
  async train({ preset, seed }) {
    const run = await startRun(preset, seed);
    return { run: run.id };
  },
  async decode({ run: id, text, ablated, selection, asked }) {
    const run = await runOf(id);
    const model = await modelOf(run);
    const { facts } = model;
    const sentences = sentencesOf(facts, text);
    const results = sentences.length > 1 ? await translate(model, sentences, ablated) : [];
    const part = sentences[Math.max(0, results.findIndex(({ problem }) => !problem))];
    const decode = await decodeText(model, part, ablated);
    const baseline = ablated.length ? await decodeText(model, part) : null;
    const record = recordOf(facts, run, stepOf(run), decode);
    const off = ablated.length ? ", without " + ablated.join(", ") : "";
    return {
      message: "Decoded with " + run.title + " (best weights, after " + stepOf(run).toLocaleString("en") + " training steps" + (run.shipped && isRounded(facts) ? ", rounded to 8 bits" : "") + ")" + off + (results.length ? ". Steps and attention are those of “" + strip(part) + "”" : "") + ". Its task: " + facts.task.summary,
      answer: { ...answerValue(facts, decode, record), asked: text }, thumbnails: thumbnailsValue(facts, decode),
      viewer: viewerValue(run, record, selection, asked), comparison: baseline && comparisonValue(baseline, decode),
      translations: results.length ? { text: strip(results.map(({ output, space }) => output + space).join("")), sentences: results } : null,
    };
  },
  async facts({ run }) {
    const { facts } = await openLab((await runOf(run)).lab);
    return { examples: facts.examples, heads: facts.model.heads, blocks: facts.blocks, measured: facts.subword_scores ? 0 : facts.data.test };
  },
  /** Whether a run's task can read a text; subwords read any, also the digits of another task. */
  async readable({ run, text }) {
    const { facts } = await openLab((await runOf(run)).lab);
    const unlessRefused = (read) => {
      try {
        return read();
      } catch {
        return null;
      }
    };
    const sentences = unlessRefused(() => sentencesOf(facts, text)) ?? [];
    if (!sentences.some((each) => unlessRefused(() => readInput(facts, each)))) return { is: false };
    return { is: !facts.subword_scores || /\p{L}/u.test(text) };
  },
  /** Exact match on held-out inputs without the named heads; progress is { done, exact }. */
  async measure({ run: id, ablated = [], sequences }, report = () => {}) {
    const run = await runOf(id);
    const model = await modelOf(run);
    const pairs = await readPairs(await openLab(run.lab), "test");
    const to = Math.min(sequences, pairs.length);
    let exact = 0;
    for (let at = 0; at < to; at += ROWS) {
      const indices = Array.from({ length: Math.min(ROWS, to - at) }, (_, offset) => at + offset);
      exact += await countExact(model, indices.map(pairs.source), indices.map((index) => pairs.target(index).slice(1)), { ablated });
      report({ done: at + indices.length, exact });
      await new Promise((resolve) => setTimeout(resolve));
    }
    return { exact, sequences: to, exact_match: exact / to, step: stepOf(run) };
  },
  async open_file({ bytes, name }) {
    const facts = await readRunFile(bytes, name);
    const run = await addRun({ ...facts, id: facts.lab + "-" + Date.now().toString(36), steps: facts.step, best_step: facts.step, status: "finished" });
    return { run: run.id };
  },
};

Object.assign(functions, lessonFunctions(functions.measure));

/** Decode each of several sentences; the value of the component "translations". */
async function translate(model, sentences, ablated) {
  const found = [];
  for (const sentence of sentences) {
    const of = { source: strip(sentence), space: sentence.slice(stripEnd(sentence).length) };
    try {
      found.push({ ...of, output: (await decodeText(model, sentence, ablated)).texts.output, problem: "" });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      found.push({ ...of, output: "", problem: error.message });
    }
  }
  return found;
}

/** The address of a run's file, made once for its best weights. */
async function fileOf(run, model) {
  const key = run.id + " " + stepOf(run) + " " + run.title;
  if (!files.has(key)) files.set(key, URL.createObjectURL(new Blob([await writeRunFile(run, model)])));
  return { file: files.get(key), file_name: run.title + ".safetensors" };
}

/** Answer what arrives at a port. */
export function serve(port) {
  port.onmessage = async ({ data: { id, name, argument } }) => {
    try {
      const answer = await functions[name](argument, (progress) => port.postMessage({ id, progress }));
      port.postMessage({ id, answer: answer ?? {} });
    } catch (error) {
      if (!(error instanceof Problem)) console.error(error);
      port.postMessage({ id, answer: { error: error instanceof Problem ? error.message : "Something went wrong in this page: " + error.message } });
    }
  };
}
