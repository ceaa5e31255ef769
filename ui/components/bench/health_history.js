// The health of one run by step, as the server sends it: series by measure and name.

export const emptyHealth = () => ({ steps: [], series: {}, byLayer: false });

/** Add an answer of the server, and drop the steps that are no longer saved. */
export function mergeHealth(health, { steps, added, series, by_layer: byLayer }) {
  const saved = new Set(steps);
  const first = added[0] ?? Infinity;
  const kept = health.steps.map((step, at) => [step, at]).filter(([step]) => step < first && saved.has(step));
  const merged = {};
  for (const measure of Object.keys({ ...health.series, ...series })) {
    const [before, now] = [health.series[measure] ?? {}, series[measure] ?? {}];
    merged[measure] = {};
    for (const name of Object.keys({ ...before, ...now })) {
      merged[measure][name] = [...kept.map(([, at]) => before[name]?.[at] ?? null), ...added.map((_, at) => now[name]?.[at] ?? null)];
    }
  }
  return { steps: [...kept.map(([step]) => step), ...added], series: merged, byLayer: added.length ? byLayer : health.byLayer };
}

/** "cross.1.2" → "cross 1.2"; "embeddings" stays. */
export const nameText = (name) => name.replace(".", " ");

/** All figures as rows of a CSV file, one per step. */
export function healthRows({ steps, series }) {
  const columns = Object.entries(series).flatMap(([measure, of]) => Object.entries(of).map(([name, values]) => [measure + " " + name, values]));
  return [["step", ...columns.map(([title]) => title)], ...steps.map((step, at) => [step, ...columns.map(([, values]) => values[at])])];
}
