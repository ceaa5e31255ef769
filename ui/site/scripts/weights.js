// Weights of the site's files; ui/site/weight_files.py writes them.

import { readBytes } from "./files.js";

/** Whether the matrices of a run that ships with the site are rounded to 8 bits, as those of large models are. */
export const isRounded = ({ files }) => !files["weights.bin"];

/** The weights as one array of numbers in the order of the facts. */
export async function readWeights(facts) {
  const rounded = isRounded(facts);
  const bytes = await readBytes(facts.files[rounded ? "weights-int8.bin" : "weights.bin"]);
  return rounded ? unrounded(facts.model, bytes) : new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

/** Numbers from the scales of the rows of all matrices, among the vectors, and then the matrices as integers. */
export function unrounded({ weights, parameters }, bytes) {
  const numFloats = weights.reduce((sum, [, shape]) => sum + shape[0], 0);
  const floats = new Float32Array(bytes.buffer, bytes.byteOffset, numFloats);
  const integers = new Int8Array(bytes.buffer, bytes.byteOffset + 4 * numFloats);
  const numbers = new Float32Array(parameters);
  let [row, from, at] = [0, 0, 0];
  for (const [, shape] of weights) {
    const width = shape[1] ?? 1;
    for (const end = row + shape[0]; row < end; row += 1) {
      for (let column = 0; column < width; column += 1, at += 1) {
        numbers[at] = shape.length > 1 ? floats[row] * integers[from++] : floats[row];
      }
    }
  }
  return numbers;
}
