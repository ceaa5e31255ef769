// The file of a run, as the program exports and imports it: safetensors with the preset and a checksum; see
// core/storage/tensor_file.py.

import { openLab, numbersOf } from "./model.js";
import { readJson } from "./files.js";
import { Problem } from "./problem.js";
import { stepOf } from "./runs.js";

const FORMAT = "attention-lab-2";
const ZEROS = "0".repeat(64);
const MAX_BYTES = 64 * 1024 * 1024;
const encoder = new TextEncoder();

async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function joined(header, data) {
  const bytes = new Uint8Array(8 + header.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
  bytes.set(header, 8);
  bytes.set(data, 8 + header.length);
  return bytes;
}

/** The file of a run with its best weights. */
export async function writeRunFile(run, model) {
  const { facts } = model;
  const numbers = numbersOf(facts, model.weights);
  const at = run.evaluations.step.indexOf(run.best_step);
  const about = {
    step: stepOf(run), validation_loss: at === -1 ? null : run.evaluations.loss[at], exact_match: run.exact_match,
    preset: facts.yaml, title: run.title,
  };
  let from = 0;
  const tensors = Object.fromEntries(facts.model.weights.map(([name, shape]) => {
    const start = from;
    from += 4 * shape.reduce((a, b) => a * b, 1);
    return [name, { dtype: "F32", shape, data_offsets: [start, from] }];
  }));
  const header = (checksum) => {
    const text = JSON.stringify({ __metadata__: { format: FORMAT, facts: JSON.stringify(about), sha256: checksum }, ...tensors });
    return encoder.encode(text + " ".repeat((8 - (encoder.encode(text).length % 8)) % 8));
  };
  const data = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  return joined(header(await sha256(joined(header(ZEROS), data))), data);
}

/** The facts of a run and its weights, from a file of the program or of this site. */
export async function readRunFile(bytes, name) {
  const refuse = (why) => {
    throw new Problem("“" + name.slice(0, 60) + "” cannot be opened: " + why);
  };
  if (bytes.length > MAX_BYTES) refuse("it has more than 64 MB.");
  const length = bytes.length < 8 ? NaN : Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  if (!(length <= bytes.length - 8)) refuse("it is not the file of a run (.safetensors), or it is not complete.");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length)));
  } catch {
    refuse("it is not the file of a run (.safetensors).");
  }
  const { __metadata__: about, ...tensors } = header;
  if (about?.format !== FORMAT || !/^[0-9a-f]{64}$/.test(about.sha256)) refuse("it was not written by this program.");
  const copy = bytes.slice();
  const text = new TextDecoder("latin1").decode(copy.subarray(8, 8 + length));
  copy.set(encoder.encode(ZEROS), 8 + text.indexOf(about.sha256));
  if ((await sha256(copy)) !== about.sha256) refuse("it is damaged: its checksum does not match.");
  const facts = factsOf(about.facts, refuse);
  const lab = await labOf(tensors, facts, refuse);
  const numbers = new Float32Array(lab.facts.model.parameters);
  const data = copy.slice(8 + length);
  let at = 0;
  for (const [weight] of lab.facts.model.weights) {
    const { data_offsets: [start, end] } = tensors[weight];
    numbers.set(new Float32Array(data.buffer, start, (end - start) / 4), at);
    at += (end - start) / 4;
  }
  if (!numbers.every(Number.isFinite)) refuse("it has weights that are not finite.");
  const title = typeof facts.title === "string" && facts.title ? facts.title : name.replace(/\.safetensors$/, "");
  return { lab: lab.name, title: title.slice(0, 60), step: facts.step, exact_match: facts.exact_match ?? null, best: numbers, seed: 0 };
}

/** What a file says about its run, checked: anyone can write a file with a matching checksum. */
function factsOf(text, refuse) {
  let facts;
  try {
    facts = JSON.parse(text);
  } catch {
    refuse("what it says about its run cannot be read.");
  }
  const isShare = facts?.exact_match == null || (facts.exact_match >= 0 && facts.exact_match <= 1);
  if (!Number.isInteger(facts?.step) || facts.step < 0 || !isShare || typeof facts.preset !== "string") refuse("what it says about its run is not valid.");
  return facts;
}

/** The lab of the site with the architecture and the task of a file. */
async function labOf(tensors, facts, refuse) {
  const task = sectionOf(facts.preset, "task");
  const model = sectionOf(facts.preset, "model");
  for (const name of (await readJson("labs/index.json")).labs) {
    const lab = await openLab(name);
    const { weights } = lab.facts.model;
    const fits = weights.length === Object.keys(tensors).length
      && weights.every(([weight, shape]) => tensors[weight]?.dtype === "F32" && String(tensors[weight].shape) === String(shape));
    if (fits && sectionOf(lab.facts.yaml, "task") === task && sectionOf(lab.facts.yaml, "model") === model) return lab;
  }
  return refuse("its task or its model is none of this site's. The program opens it.");
}

/** A section of a preset's YAML without its comments. */
function sectionOf(yaml, name) {
  const found = String(yaml).match(new RegExp("^" + name + ":\\n((?:[ #].*\\n|\\n)*)", "m"))?.[1] ?? "";
  return found.split("\n").map((line) => line.replace(/\s+#.*$/, "").trim()).filter((line) => line && !line.startsWith("#") && !/^dropout:/.test(line)).join("\n");
}
