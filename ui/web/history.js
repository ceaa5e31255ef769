// The metrics of one run for the charts: columns of equal length, ordered by step.

/** The metrics that only some runs have. */
export const FURTHER = ["free_running_loss", "bleu", "chrf", "error_rate", "token_error_rate", "train_token_accuracy", "train_exact_match"];

/**
 * An empty history. `points` has rows of training steps, `evaluations` of evaluations: all in a short run, otherwise
 * those with extreme values in groups of `widths` steps.
 */
export function emptyHistory() {
  return {
    widths: { points: 0, evaluations: 0 },
    points: { step: [], loss: [], learning_rate: [], gradient_norm: [] },
    evaluations: { step: [], loss: [], token_accuracy: [], exact_match: [], ...Object.fromEntries(FURTHER.map((name) => [name, []])) },
  };
}

/** Whether the evaluations have a metric; see FURTHER. */
export const isMeasured = ({ evaluations }, name) => evaluations[name].some((value) => value != null);

/** The last step, or -1. */
export const lastStep = (columns) => columns.step.at(-1) ?? -1;

/** Replace the rows at and after step `from` by those of a response, { from, columns }; returns whether any changed. */
export function mergeRows(columns, update) {
  if (!update?.columns) return false;
  const kept = indexAtOrBefore(columns.step, update.from - 1) + 1;
  let changed = columns.step.length - kept !== update.columns.step.length;
  for (const name of Object.keys(columns)) {
    const added = update.columns.step.map((_, row) => update.columns[name]?.[row] ?? null);
    const dropped = columns[name].splice(kept, Infinity, ...added);
    changed ||= added.some((value, row) => value !== dropped[row]);
  }
  return changed;
}

/** Merge a response into a history; returns whether { points, evaluations } changed. */
export function mergeHistory(history, update) {
  const merge = (name) => {
    history.widths[name] = update[name]?.width ?? 0;
    return mergeRows(history[name], update[name]);
  };
  return { points: merge("points"), evaluations: merge("evaluations") };
}

/** The part of a request that describes the page's rows. */
export function heldRows({ points, evaluations, widths }) {
  return {
    since_step: lastStep(points),
    since_evaluation: lastStep(evaluations),
    step_width: widths.points,
    evaluation_width: widths.evaluations,
  };
}

/** Index of the last step that is not after `step`; -1 if all are. */
export function indexAtOrBefore(steps, step) {
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
export function nearestIndex(steps, step) {
  const below = indexAtOrBefore(steps, step);
  const above = below + 1;
  if (below < 0) return steps.length ? 0 : -1;
  if (above >= steps.length) return below;
  return steps[above] - step < step - steps[below] ? above : below;
}

/** Exponential moving average with bias correction. */
export function smooth(values, weight) {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value == null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}
