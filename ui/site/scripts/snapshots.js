// Attention snapshots during training: answers and maps of the fixed inputs, and how well each head is aligned.

import { EOS } from "./model.js";

export const MAX_SNAPSHOTS = 64;

/** Decode the fixed inputs of a task together, and keep what the page shows of them. */
export async function takeSnapshot(model, step) {
  const { facts } = model;
  const inputs = facts.groups.flatMap(({ src, steps, gold }) => src.map((source, row) => ({ source, steps, gold: gold[row] })));
  const sources = inputs.map(({ source }) => source);
  const decoded = await model.greedy(sources, Math.max(...inputs.map(({ steps }) => steps)));
  const answers = decoded.map(({ tokens }, at) => tokens.slice(0, inputs[at].steps));
  const maps = await model.maps(sources, answers);
  const outputs = [];
  const groups = [];
  let first = 0;
  for (const { src, gold, shown } of facts.groups) {
    const [own, ownMaps] = [answers, maps].map((all) => all.slice(first, first + src.length));
    for (const [row, index] of shown) outputs[index] = { tokens: own[row].map((id) => facts.target_tokens[id]), maps: packed(ownMaps[row]) };
    groups.push({ group: { src, gold }, answers: own, maps: ownMaps });
    first += src.length;
  }
  return { step, outputs, ...scores(facts, groups) };
}

/** Maps as bytes in base64, one for each weight, as the page's components read them. */
export function packed(maps, bytes = 1) {
  return Object.fromEntries(Object.entries(maps).map(([block, { dims, data }]) => {
    const most = 256 ** bytes - 1;
    const numbers = bytes === 1 ? new Uint8Array(data.length) : new Uint16Array(data.length); // little-endian on every device with a browser
    for (let at = 0; at < data.length; at += 1) numbers[at] = Math.round(data[at] * most);
    return [block, { shape: dims, bytes, data: toBase64(new Uint8Array(numbers.buffer)) }];
  }));
}

function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** The attention of each head on the correct source tokens: means over the steps of each length, then over lengths. */
function scores(facts, groups) {
  const scored = groups.filter(({ group }) => group.gold.some((cells) => cells.length));
  if (!scored.length) return { attention_mass: null, uniform_mass: null, num_scored: 0 };
  const found = scored.map(({ group, answers, maps }) => meanMass(maps.map((each) => each[facts.source_block]), answers, group, facts.source_block));
  const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
  return {
    attention_mass: found[0].masses.map((heads, layer) => heads.map((_, head) => mean(found.map(({ masses }) => masses[layer][head])))),
    uniform_mass: mean(found.map(({ uniform }) => uniform)),
    num_scored: groups.reduce((count, { group }) => count + group.src.length, 0),
  };
}

/** The attention mass of each head [layer][head] over a group of decodes, and that of uniform attention. */
export function meanMass(maps, answers, { src, gold }, block) {
  const [layers, heads] = maps[0].dims;
  const sums = new Float64Array(layers * heads);
  let [uniform, steps] = [0, 0];
  maps.forEach(({ dims, data }, row) => {
    const [, , rows, columns] = dims;
    const byStep = new Map();
    for (const [step, column] of gold[row]) byStep.set(step, [...(byStep.get(step) ?? []), column]);
    for (const [step, cells] of byStep) {
      if (step >= answers[row].length) continue;
      steps += 1;
      uniform += cells.length / (block === "cross" ? src[row].length : src[row].length + step + 1);
      for (let head = 0; head < sums.length; head += 1) {
        for (const column of cells) sums[head] += data[(head * rows + step) * columns + column];
      }
    }
  });
  const masses = Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => sums[layer * heads + head] / steps));
  return { masses, uniform: uniform / steps };
}

/** Keep at most MAX_SNAPSHOTS: of too many, every second one goes, but not the last. */
export function thinned(snapshots) {
  if (snapshots.length <= MAX_SNAPSHOTS) return snapshots;
  return snapshots.filter((_, at) => at % 2 === 0 || at === snapshots.length - 1);
}

/** The tokens of an answer without EOS. */
export const withoutEos = (ids) => (ids.at(-1) === EOS ? ids.slice(0, -1) : ids);
