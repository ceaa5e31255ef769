// Training: the same updates as the program's, by the graph of one update. A training is an iterator of events.

import { double, floats, idTensor } from "./graph.js";
import { EOS, Model, PAD, numbersOf, weightsOf } from "./model.js";
import { readBytes } from "./files.js";
import { Problem } from "./problem.js";
import { readWeights } from "./weights.js";

const ROWS = 256; // evaluated together

/** A generator of numbers from 0 to 1 (mulberry32): the same for a seed in every browser. */
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function shuffle(list, random) {
  for (let at = list.length - 1; at > 0; at -= 1) {
    const other = Math.floor(random() * (at + 1));
    [list[at], list[other]] = [list[other], list[at]];
  }
  return list;
}

/**
 * The initial weights of a seed: those of the preset's own seed, 0, shuffled within each tensor. They are independent
 * draws from one distribution, so every order is as likely. Zeros, such as the embedding of PAD, stay where they are.
 */
function initialNumbers(facts, numbers, seed) {
  if (seed === 0) return numbers;
  const shuffled = numbers.slice();
  const random = randomNumbers(seed);
  let at = 0;
  for (const [, shape] of facts.model.weights) {
    const size = shape.reduce((a, b) => a * b, 1);
    const drawn = Array.from({ length: size }, (_, offset) => at + offset).filter((index) => numbers[index] !== 0);
    const values = shuffle(drawn.map((index) => numbers[index]), random);
    drawn.forEach((index, position) => (shuffled[index] = values[position]));
    at += size;
  }
  return shuffled;
}

/** Pairs of a data set: source(at) and target(at) without PAD, the target with BOS. */
export async function readPairs({ facts }, name) {
  const { bytes, widths: [source, target] } = facts.data;
  const raw = await readBytes(facts.files[name + ".bin"]);
  const ids = bytes === 1 ? raw : new Uint16Array(raw.buffer, raw.byteOffset, raw.byteLength / 2);
  const count = facts.data[name];
  const row = (from, width) => {
    const all = ids.subarray(from, from + width);
    const end = all.indexOf(PAD);
    return Array.from(end === -1 ? all : all.subarray(0, end));
  };
  return {
    length: count,
    source: (at) => row(at * source, source),
    target: (at) => row(count * source + at * target, target),
  };
}

/** The state of a training; it can be saved, and another one can begin with it. */
export class Training {
  constructor(lab, pairs, validation, { seed, weights, moments, step = 0, bestLoss = Infinity }) {
    const { facts } = lab;
    Object.assign(this, { lab, facts, pairs, validation, step, bestLoss, seed });
    this.weights = weightsOf(facts, weights);
    this.state = statesOf(facts, moments);
    this.order = Array.from({ length: pairs.length }, (_, at) => at);
    if (seed !== 0 && !facts.training.keeps_batches) shuffle(this.order, randomNumbers(seed + 1));
    this.update = null;
  }

  /** Begin a training with a seed, or continue one: `saved` is what `saved()` returned. */
  static async begin(lab, { seed, saved = null }) {
    const [pairs, validation] = await Promise.all(["train", "validation"].map((name) => readPairs(lab, name)));
    const training = saved
      ? new Training(lab, pairs, validation, { seed, ...saved })
      : new Training(lab, pairs, validation, { seed, weights: initialNumbers(lab.facts, await readWeights(lab.facts), seed), moments: null });
    training.update = await lab.graph("step");
    return training;
  }

  get steps() {
    return this.facts.training.steps;
  }

  get model() {
    return new Model(this.lab, this.weights);
  }

  get isEvaluationDue() {
    return this.step % this.facts.training.evaluate_every === 0 || this.step === this.steps;
  }

  saved() {
    const moments = new Float32Array(Object.values(this.state).reduce((sum, { data }) => sum + data.length, 0));
    let at = 0;
    for (const { data } of Object.values(this.state)) {
      moments.set(data, at);
      at += data.length;
    }
    return { weights: numbersOf(this.facts, this.weights), moments, step: this.step, bestLoss: this.bestLoss };
  }

  /** Make one update; returns { step, loss, learning_rate, gradient_norm }. */
  async next() {
    const { batch_size: size, learning_rates: rates } = this.facts.training;
    const [source, target] = this.facts.data.widths;
    const step = this.step + 1;
    const rows = Array.from({ length: size }, (_, row) => this.order[((step - 1) * size + row) % this.order.length]);
    const values = {
      ...this.weights, ...this.state, step: double(step), learning_rate: double(rates[step - 1]),
      src: idTensor(rows.map(this.pairs.source), source), tgt: idTensor(rows.map(this.pairs.target), target),
    };
    const found = await this.update(values);
    const [loss, norm] = [found.loss.data[0], found.gradient_norm.data[0]];
    if (!Number.isFinite(loss) || !Number.isFinite(norm)) {
      throw new Problem("Update " + step + " has a loss or a gradient that is not finite, so it was not made. The weights before it are kept.");
    }
    for (const name of Object.keys(this.weights)) this.weights[name] = found["new." + name];
    for (const name of Object.keys(this.state)) this.state[name] = found["new." + name];
    this.step = step;
    return { step, loss, learning_rate: rates[step - 1], gradient_norm: norm };
  }

  /** Evaluate on the validation set; `isBest` says whether its loss is the lowest so far. */
  async evaluate() {
    const found = await evaluate(this.model, this.validation);
    const isBest = found.loss < this.bestLoss;
    if (isBest) this.bestLoss = found.loss;
    return { step: this.step, ...found, isBest };
  }
}

/** The optimizer's state by name: zeros before the first update. */
function statesOf(facts, moments) {
  const shapes = Object.fromEntries(facts.model.weights);
  let at = 0;
  return Object.fromEntries(facts.training.state.map(([name, weight]) => {
    const size = shapes[weight].reduce((a, b) => a * b, 1);
    at += size;
    return [name, floats(moments ? moments.slice(at - size, at) : new Float32Array(size), shapes[weight])];
  }));
}

/**
 * Loss in nats per token, token accuracy and exact match on pairs, in one pass over the references: greedy decoding
 * writes the whole reference if, and only if, each of its tokens is the most probable one after those before it.
 */
export async function evaluate(model, pairs) {
  let [loss, tokens, correct, exact] = [0, 0, 0, 0];
  for (let start = 0; start < pairs.length; start += ROWS) {
    const indices = Array.from({ length: Math.min(ROWS, pairs.length - start) }, (_, at) => start + at);
    const references = indices.map((at) => pairs.target(at).slice(1));
    const { logits: { data, dims: [, width, vocabulary] } } = await model.forward(indices.map(pairs.source), references, ["logits"]);
    references.forEach((reference, row) => {
      const isRight = reference.map((id, step) => {
        const first = (row * width + step) * vocabulary;
        const own = data.subarray(first, first + vocabulary);
        const most = Math.max(...own);
        loss += most + Math.log(own.reduce((sum, logit) => sum + Math.exp(logit - most), 0)) - own[id];
        return own.indexOf(most) === id;
      });
      tokens += reference.length;
      correct += isRight.filter(Boolean).length;
      exact += isRight.every(Boolean);
    });
  }
  return { loss: loss / tokens, token_accuracy: correct / tokens, exact_match: exact / pairs.length };
}

/** How many sources a model answers with exactly the reference. */
export async function countExact(model, sources, references, options = {}) {
  const answers = await model.greedy(sources, Math.max(...references.map((each) => each.length)), options);
  const ended = (ids) => (ids.at(-1) === EOS ? ids : [...ids, EOS]); // references of a task that has no EOS in its targets
  return answers.filter(({ tokens }, row) => tokens.join() === ended(references[row]).join()).length;
}
