// The metrics of one run for the charts: columns of equal length, ordered by step.

/** An empty history. `points` has one row per training step, `evaluations` one per evaluation. */
function emptyHistory() {
  return {
    points: { step: [], loss: [], learning_rate: [], gradient_norm: [] },
    evaluations: { step: [], loss: [], token_accuracy: [], exact_match: [] },
  };
}

/** The last step, or -1. */
const lastStep = (columns) => columns.step.at(-1) ?? -1;

/** Append new rows; returns how many. Rows that are already there (a response that came twice) are skipped. */
function appendRows(columns, rows) {
  if (!rows?.step) return 0;
  const before = columns.step.length;
  for (let row = 0; row < rows.step.length; row += 1) {
    if (rows.step[row] <= lastStep(columns)) continue;
    for (const name of Object.keys(columns)) columns[name].push(rows[name]?.[row] ?? null);
  }
  return columns.step.length - before;
}

/** Index of the last step that is not after `step`; -1 if all are. */
function indexAtOrBefore(steps, step) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Index of the step nearest to `step`; -1 for an empty list. */
function nearestIndex(steps, step) {
  const below = indexAtOrBefore(steps, step);
  const above = below + 1;
  if (below < 0) return steps.length ? 0 : -1;
  if (above >= steps.length) return below;
  return steps[above] - step < step - steps[below] ? above : below;
}

/** Exponential moving average with bias correction. */
function smooth(values, weight) {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value == null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

/** One row per evaluation with all metrics; per-step metrics are those of the nearest step. */
function evaluationRows({ points, evaluations }) {
  return evaluations.step.map((step, row) => {
    const near = nearestIndex(points.step, step);
    return [
      step,
      points.loss[near] ?? null,
      evaluations.loss[row],
      evaluations.token_accuracy[row],
      evaluations.exact_match[row],
      points.learning_rate[near] ?? null,
      points.gradient_norm[near] ?? null,
    ];
  });
}

/** All metrics as rows of a CSV file, one per step; cells without a value are empty. */
function historyRows({ points, evaluations }) {
  const rowOfStep = new Map();
  const rowAt = (step) => rowOfStep.get(step) ?? rowOfStep.set(step, Array(7).fill(null)).get(step);
  const put = (columns, names, from) => columns.step.forEach((step, row) => {
    rowAt(step)[0] = step;
    names.forEach((name, at) => (rowAt(step)[from + at] = columns[name][row]));
  });
  put(points, ["loss", "learning_rate", "gradient_norm"], 1);
  put(evaluations, ["loss", "token_accuracy", "exact_match"], 4);
  const head = ["step", "train_loss", "learning_rate", "gradient_norm",
    "validation_loss", "token_accuracy", "exact_match"];
  return [head, ...[...rowOfStep.values()].sort((a, b) => a[0] - b[0])];
}
