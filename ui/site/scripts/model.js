// A model: an architecture's graphs with the weights of a run.

import { floats, idTensor, openGraph } from "./graph.js";
import { readJson } from "./files.js";

export const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];
const BLOCKS = ["encoder", "decoder", "cross"];
const labs = new Map();

/** A preset of the site, or the architecture of a run: { facts, graph(name), read(name) }; see ui/site/labs.py. */
export async function openLab(name) {
  if (!labs.has(name)) {
    const facts = await readJson("labs/" + name + "/lab.json");
    const graphs = {};
    const graph = (kind) => (graphs[kind] ??= openGraph(facts.files[kind + ".onnx"]));
    labs.set(name, { name, facts, graph });
  }
  return labs.get(name);
}

/** Weights by name, as tensors on one array of numbers in the order of the facts. */
export function weightsOf(facts, numbers) {
  let at = 0;
  return Object.fromEntries(facts.model.weights.map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    at += size;
    return [name, floats(numbers.subarray(at - size, at), shape)];
  }));
}

/** One array of numbers from weights by name, in the order of the facts. */
export function numbersOf(facts, weights) {
  const numbers = new Float32Array(facts.model.parameters);
  let at = 0;
  for (const [name] of facts.model.weights) {
    numbers.set(weights[name].data, at);
    at += weights[name].data.length;
  }
  return numbers;
}

/** The gain of every head: 0 for those that are named, or in a layer that is named. */
export function gainsOf(facts, ablated = []) {
  const isOff = (head) => ablated.some((each) => head === each || head.startsWith(each + "."));
  return floats(Float32Array.from(facts.model.heads, (head) => (isOff(head) ? 0 : 1)), [facts.model.heads.length]);
}

function argmax(data, from, count) {
  let best = 0;
  for (let at = 1; at < count; at += 1) if (data[from + at] > data[from + best]) best = at;
  return best;
}

export class Model {
  constructor(lab, weights) {
    Object.assign(this, { lab, weights, facts: lab.facts });
  }

  /** Open the graphs that a decode needs. */
  open() {
    return Promise.all(["start", "token", "forward"].map((name) => this.lab.graph(name)));
  }

  /**
   * Decode rows of source ids greedily. Returns for each row { tokens, logits }: ids up to EOS, and with `keepsLogits`
   * the logits of every step.
   */
  async greedy(rows, maxSteps, { ablated = [], keepsLogits = false } = {}) {
    const [start, token] = [await this.lab.graph("start"), await this.lab.graph("token")];
    let given = { ...this.weights, head_gains: gainsOf(this.facts, ablated), src: idTensor(rows) };
    const [states, next] = [start.outputs.filter((name) => !BLOCKS.includes(name)), token.outputs.filter((name) => name.startsWith("new."))];
    given = { ...given, ...await start(given, states) };
    const answers = rows.map(() => ({ tokens: [], logits: [] }));
    let last = rows.map(() => BOS);
    for (let step = 0; step < maxSteps && answers.some(({ tokens }) => tokens.at(-1) !== EOS); step += 1) {
      const read = await token({ ...given, token: idTensor(last.map((id) => [id])) }, ["logits", ...next]);
      for (const name of next) given[name.slice("new.".length)] = read[name];
      const vocabulary = read.logits.dims[2];
      last = answers.map((answer, row) => {
        const chosen = argmax(read.logits.data, row * vocabulary, vocabulary);
        if (answer.tokens.at(-1) === EOS) return PAD;
        answer.tokens.push(chosen);
        if (keepsLogits) answer.logits.push(read.logits.data.slice(row * vocabulary, (row + 1) * vocabulary));
        return chosen;
      });
    }
    return answers;
  }

  /** Read sources and answers, as rows of ids, together; returns the named outputs of the forward pass. */
  async forward(rows, answers, outputs, { ablated = [] } = {}) {
    const width = Math.max(2, ...answers.map((tokens) => tokens.length));
    const values = { src: idTensor(rows), tgt_in: idTensor(answers.map((tokens) => [BOS, ...tokens.slice(0, -1)]), width) };
    const forward = await this.lab.graph("forward");
    return forward({ ...this.weights, head_gains: gainsOf(this.facts, ablated), ...values }, outputs.filter((name) => forward.outputs.includes(name)));
  }

  /**
   * The attention of an answer while it was decoded, for each of the rows: { block: { dims: [layers, heads, rows,
   * columns], data } }.
   */
  async maps(rows, answers, options) {
    const found = await this.forward(rows, answers, BLOCKS, options);
    const source = Math.max(...rows.map((row) => row.length));
    const own = "cross" in found || "encoder" in found; // a decoder that reads no source of its own
    return rows.map(({ length }, at) => {
      const steps = answers[at].length;
      const ranges = { // first column and number of columns, of the source and of the target; without PAD
        encoder: [length, [[0, length]]], cross: [steps, [[0, length]]],
        decoder: [steps, own ? [[0, steps]] : [[0, length], [source, steps]]],
      };
      return Object.fromEntries(Object.entries(found).map(([block, map]) => [block, cropped(map, at, ...ranges[block])]));
    });
  }
}

/** The rows and columns of one sequence in a batch of maps. */
function cropped({ data, dims: [layers, batch, heads, allRows, allColumns] }, at, rows, ranges) {
  const columns = ranges.reduce((sum, [, count]) => sum + count, 0);
  const own = new Float32Array(layers * heads * rows * columns);
  let to = 0;
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) {
      for (let row = 0; row < rows; row += 1) {
        const from = (((layer * batch + at) * heads + head) * allRows + row) * allColumns;
        for (const [first, count] of ranges) {
          own.set(data.subarray(from + first, from + first + count), to);
          to += count;
        }
      }
    }
  }
  return { dims: [layers, heads, rows, columns], data: own };
}
