// The live figures of the lessons on attention; the counterparts of ui/components/lesson/live_figures.py.

import { decodeText, recordOf, softmax } from "./decoding.js";
import { readJson } from "./files.js";
import { flag, floats, idTensor } from "./graph.js";
import { BOS, EOS, PAD, openLab } from "./model.js";
import { Problem } from "./problem.js";
import { modelOf, runOf, stepOf } from "./runs.js";
import { replayOf } from "./replies.js";
import { readInput, solve } from "./tasks.js";

const SEQUENCES = 500; // held-out inputs of an ablation
const MAX_TOKENS = 12; // of an input, so that every figure stays readable
const measured = new Map(); // exact match by ablated heads

const rounded = (value) => Math.round(1e4 * value) / 1e4;

/** A tensor as nested lists of numbers, without the dimension `skip`, which has size 1. */
function nested({ data, dims }, skip = null) {
  const sizes = skip === null ? dims : dims.filter((_, at) => at !== skip);
  const build = (at, from, size) => (at === sizes.length
    ? rounded(Number(data[from]))
    : Array.from({ length: sizes[at] }, (_, index) => build(at + 1, from + index * (size / sizes[at]), size / sizes[at])));
  return build(0, 0, data.length);
}

const cosines = (vectors) => vectors.map((a) => vectors.map((b) =>
  rounded(a.reduce((sum, value, at) => sum + value * b[at], 0) / (Math.hypot(...a) * Math.hypot(...b)))));

const rowsOf = ({ data, dims }, count) => Array.from({ length: count }, (_, row) => Array.from(data.slice(row * dims.at(-1), (row + 1) * dims.at(-1))));

/** The forward pass without positions or masks; `open` names the blocks whose masks are opened. */
async function changedForward(model, source, tgtIn, { positions = 1, open = [] }) {
  const graph = await model.lab.graph("removals");
  const opened = graph.inputs.filter((name) => name.startsWith("open."));
  const switches = Object.fromEntries(opened.map((name) => [name, flag(open.includes(name.slice("open.".length)))]));
  return graph({ ...model.weights, ...switches, positions: floats(new Float32Array([positions]), []), src: idTensor([source]), tgt_in: idTensor([tgtIn], Math.max(2, tgtIn.length)) });
}

/** Decode without a cache, as the changed model has none; returns ids, their probabilities and the last pass. */
async function changedDecode(model, source, changes) {
  const tokens = [];
  const probabilities = [];
  let found = null;
  while (tokens.length < model.facts.model.max_seq_len && tokens.at(-1) !== EOS) {
    found = await changedForward(model, source, [BOS, ...tokens], changes);
    const width = found.logits.dims[2];
    const row = softmax(found.logits.data.slice(tokens.length * width, (tokens.length + 1) * width));
    tokens.push(row.indexOf(Math.max(...row)));
    probabilities.push(Math.max(...row));
  }
  return { tokens, probabilities, found };
}

function answerOf({ facts }, symbols, tokens, probabilities) {
  const { answer } = solve(facts, symbols);
  const produced = tokens.map((id) => facts.target_tokens[id]);
  const output = produced.at(-1) === "<EOS>" ? produced.slice(0, -1) : produced;
  return { input: symbols, produced, probabilities: probabilities.map(rounded), expected: answer, correct: produced.at(-1) === "<EOS>" && output.join() === answer.join() };
}

/** What a decode of decodeText() says about the answer. */
function answerOfDecode(model, { symbols, tokens, probabilities }) {
  return answerOf(model, symbols, tokens, tokens.map((id, step) => probabilities[step][id]));
}

function symbolsOf({ facts }, text) {
  const { symbols } = readInput(facts, text);
  if (symbols.length > MAX_TOKENS) throw new Problem("The input has more than " + MAX_TOKENS + " tokens; the figures of a lesson show at most that many.");
  return { symbols, source: [BOS, ...symbols.map((symbol) => facts.source_tokens.indexOf(symbol)), EOS] };
}

const figures = {
  async vectors(model, { input }) {
    const { source } = symbolsOf(model, input);
    const { vectors, parts } = model.facts.model;
    const last = parts.filter(({ side, name }) => side === "source" && name.endsWith(".add")).at(-1).name;
    const points = { embedding: vectors["source.embedding"][0][1], position: vectors["source.positions"][0][1], encoder: vectors[last].at(-1)[1] };
    const found = await model.forward([source], [[EOS]], Object.values(points));
    const stages = Object.fromEntries(Object.entries(points).map(([stage, point]) => [stage, rowsOf(found[point], source.length)]));
    stages.sum = stages.embedding.map((row, at) => row.map((value, column) => value + stages.position[at][column]));
    return {
      tokens: source.map((id) => model.facts.source_tokens[id]), ids: source,
      vectors: stages.embedding.map((row) => row.map((value) => Math.round(1e3 * value) / 1e3)),
      similarity: Object.fromEntries(["embedding", "position", "sum", "encoder"].map((stage) => [stage, cosines(stages[stage])])),
    };
  },
  async scores(model, { input }) {
    const { source } = symbolsOf(model, input);
    const [{ tokens }] = await model.greedy([source], model.facts.model.max_seq_len);
    const { attention, weights } = model.facts.model;
    const names = Object.keys(attention);
    const found = await model.forward([source], [tokens], names.map((name) => attention[name].path + ".hook_attn_scores"));
    const [maps] = await model.maps([source], [tokens]);
    const blocks = [...new Set(names.map((name) => name.split(".")[0]))];
    const w_o = weights.find(([name]) => name === attention[names[0]].w_o)[1];
    const [produced, read] = [tokens, [BOS, ...tokens.slice(0, -1)]].map((ids) => ids.map((id) => model.facts.target_tokens[id]));
    return {
      source: source.map((id) => model.facts.source_tokens[id]), produced, read, d_k: w_o[1] / attention[names[0]].heads,
      scores: Object.fromEntries(blocks.map((block) => [block, names.filter((name) => name.startsWith(block + "."))
        .map((name) => nested(found[attention[name].path + ".hook_attn_scores"], 0))])),
      weights: Object.fromEntries(blocks.map((block) => [block, nested(maps[block])])),
    };
  },
  async decode(model, { input }) {
    symbolsOf(model, input);
    const decode = await decodeText(model, input);
    return {
      ...answerOfDecode(model, decode),
      source: ["<BOS>", ...decode.symbols, "<EOS>"], read: ["<BOS>", ...decode.produced.slice(0, -1)], gold_cells: decode.gold,
      weights: Object.fromEntries(Object.entries(decode.maps).map(([block, map]) => [block, nested(map)])),
      attention_mass: decode.scores?.masses.map((heads) => heads.map(rounded)) ?? [], uniform_mass: decode.scores?.uniform ?? null, scored: model.facts.source_block,
    };
  },
  async orders(model, { input, other }) {
    const { symbols } = symbolsOf(model, input);
    const texts = [input, other || [...symbols.slice(1), symbols[0]].join(" ")];
    const whole = [];
    const without = [];
    for (const text of texts) {
      const { symbols: own, source } = symbolsOf(model, text);
      whole.push(answerOfDecode(model, await decodeText(model, text)));
      const { tokens, probabilities } = await changedDecode(model, source, { positions: 0 });
      without.push(answerOf(model, own, tokens, probabilities));
    }
    return { with: whole, without };
  },
  async causality(model, { input, masked }) {
    const { source } = symbolsOf(model, input);
    const names = model.facts.target_tokens;
    const [{ tokens }] = await model.greedy([source], model.facts.model.max_seq_len);
    const answer = tokens.filter((id) => id !== EOS);
    if (!answer.length) throw new Problem("This input has an empty answer; type another input.");
    const read = [BOS, ...answer];
    const changed = [...read.slice(0, -1), names.length - (read.at(-1) === names.length - 1 ? 2 : 1)];
    const open = masked ? [] : ["decoder"];
    const [found, other] = [await changedForward(model, source, read, { open }), await changedForward(model, source, changed, { open })];
    const rows = [found, other].map(({ logits }) => rowsOf(logits, read.length).map(softmax));
    return {
      read: read.map((id) => names[id]), produced: rows[0].map((row) => names[row.indexOf(Math.max(...row))]),
      weights: nested(found.decoder, 1), changed_to: names[changed.at(-1)],
      changes: rows[0].map((row, at) => row.reduce((sum, value, id) => sum + Math.abs(value - rows[1][at][id]), 0) / 2),
    };
  },
  async padding(model, { input, num_pad: pads, masked }) {
    const { symbols, source } = symbolsOf(model, input);
    const padded = [...source, ...Array(pads).fill(PAD)];
    const { tokens, found } = await changedDecode(model, padded, { open: masked ? [] : ["encoder", "cross"] });
    const weights = nested(found.cross, 1).map((heads) => heads.map((rows) => rows.slice(0, tokens.length)));
    const onPad = weights.flat(2).map((row) => row.slice(source.length).reduce((a, b) => a + b, 0));
    return {
      source: padded.map((id) => model.facts.source_tokens[id]), produced: tokens.map((id) => model.facts.target_tokens[id]),
      expected: solve(model.facts, symbols).answer, weights, mass_on_pad: onPad.reduce((a, b) => a + b, 0) / onPad.length,
    };
  },
  async ablation(model, { input, ablate }, exactMatch) {
    symbolsOf(model, input);
    return {
      ablated: ablate, intact: answerOfDecode(model, await decodeText(model, input)), without: answerOfDecode(model, await decodeText(model, input, [ablate])),
      exact_match: await exactMatch([]), exact_match_without: await exactMatch([ablate]), sequences: SEQUENCES,
    };
  },
};

async function readLesson({ name }) {
  const { attention, lessons } = (await readJson("labs/index.json")).lessons;
  if (![...attention, ...lessons].some((each) => each.name === name)) throw new Problem("This site has no lesson “" + String(name).slice(0, 60) + "”.");
  return readJson("lessons/" + name + ".json");
}

/** What the component "lesson" asks for; `measure(argument)` returns exact match on held-out inputs. */
export function lessonFunctions(measure) {
  const runOfLesson = async (name) => runOf((await readJson("lessons/" + name + ".json")).run);
  const ask = (name) => async (request) => {
    const run = await runOfLesson(request.lesson);
    const exactMatch = async (ablated) => {
      const key = run.id + " " + ablated;
      if (!measured.has(key)) measured.set(key, (await measure({ run: run.id, ablated, sequences: SEQUENCES })).exact_match);
      return measured.get(key);
    };
    return figures[name](await modelOf(run), request, exactMatch);
  };
  return {
    lesson: readLesson,
    attention_lesson: readLesson,
    async reading({ lesson, input }) {
      const { run: own, sections } = await readJson("lessons/" + lesson + ".json");
      const run = await runOf(sections.find(({ figure }) => figure?.kind === "reading").figure.run || own);
      const model = await modelOf(run);
      const decode = await decodeText(model, input);
      return { record: recordOf(model.facts, run, stepOf(run), decode), probabilities: decode.tokens.map((id, step) => rounded(decode.probabilities[step][id])) };
    },
    async snapshots({ name }) {
      const run = await runOfLesson(name);
      await openLab(run.lab);
      return replayOf(run, { since: -1, since_step: -1, since_evaluation: -1 });
    },
    ...Object.fromEntries(Object.keys(figures).filter((name) => name !== "decode").map((name) => [name, ask(name)])),
    lesson_decode: ask("decode"),
  };
}
