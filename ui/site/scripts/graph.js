// Graphs in ONNX Runtime. All values are tensors by name: { data, dims }, as ONNX Runtime has them.

import * as ort from "../ort/ort.mjs";
import { readBytes } from "./files.js";
import { Problem } from "./problem.js";

let starting = null;

/** Start the runtime once; `onProgress(bytes)` is called while it downloads. */
export function startRuntime(onProgress) {
  starting ??= start(onProgress).catch((error) => {
    starting = null;
    throw error;
  });
  return starting;
}

async function start(onProgress) {
  if (typeof WebAssembly !== "object") throw new Problem("This browser has no WebAssembly, which the models need. The recorded runs can still be looked at.");
  ort.env.wasm.numThreads = 1; // more need headers that a static host does not send
  ort.env.wasm.wasmBinary = (await readBytes("ort/ort.wasm", onProgress)).buffer;
}

export const floats = (data, dims) => new ort.Tensor("float32", data, dims);
export const double = (value) => new ort.Tensor("float64", new Float64Array([value]), []);
export const flag = (value) => new ort.Tensor("bool", [value], []);

/** Rows of ids, filled up with PAD to one width, as int64. */
export function idTensor(rows, width = Math.max(...rows.map((row) => row.length))) {
  const data = new BigInt64Array(rows.length * width);
  rows.forEach((row, at) => {
    for (let column = 0; column < row.length; column += 1) data[at * width + column] = BigInt(row[column]);
  });
  return new ort.Tensor("int64", data, [rows.length, width]);
}

let last = Promise.resolve();

/** Do one thing at a time: the runtime's calls share a stack, and two that wait for each other's end would damage it. */
function inTurn(work) {
  const mine = last.then(work);
  last = mine.catch(() => {});
  return mine;
}

/** Open a graph: returns run(values, outputs), both by name. */
export async function openGraph(file) {
  await startRuntime();
  let session;
  try {
    // Optimizations above "basic" approximate; the file has had the basic ones.
    const content = await readBytes(file);
    session = await inTurn(() => ort.InferenceSession.create(content, { graphOptimizationLevel: "basic", executionProviders: ["wasm"] }));
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem("The model could not be opened in this browser: " + error.message);
  }
  const run = (values, outputs = session.outputNames) =>
    inTurn(() => session.run(Object.fromEntries(session.inputNames.map((name) => [name, values[name]])), outputs));
  return Object.assign(run, { inputs: session.inputNames, outputs: session.outputNames });
}
