// The points of a chart's lines: the drawn ones, the nearest one, and the range of the y axis.
//
// Points are { x, y, low, high }, columns of equal length in ascending x; low and high are null without a band.

import { indexAtOrBefore, nearestIndex } from "./history.js";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** The points of a line that can be drawn: finite, and positive on a log axis. */
export function drawnPoints(line, log) {
  const kept = (line?.x ?? []).map((_, at) => at)
    .filter((at) => isNumber(line.x[at]) && isNumber(line.y[at]) && (!log || line.y[at] > 0));
  const column = (values) => kept.map((at) => (isNumber(values[at]) ? values[at] : null));
  return {
    x: column(line?.x ?? []),
    y: column(line?.y ?? []),
    low: line?.low ? column(line.low) : null,
    high: line?.high ? column(line.high) : null,
  };
}

/** Index of the first and last point that a range shows, with one neighbor on each side so that lines reach the edge. */
export function visiblePart({ x }, from, to) {
  return [Math.max(0, indexAtOrBefore(x, from)), Math.min(x.length - 1, indexAtOrBefore(x, to) + 1)];
}

/** Lowest and highest value of the y axis; not zoomed in, a linear axis begins at 0 or below. */
export function valueRange(lines, { from, to, log, zoomed }) {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    const [first, last] = visiblePart(line, from, to);
    for (let at = first; at <= last; at += 1) {
      low = Math.min(low, line.y[at], log ? Infinity : line.low?.[at] ?? Infinity);
      high = Math.max(high, line.y[at], line.high?.[at] ?? -Infinity);
    }
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return high / low < 1.5 ? [low / 1.3, high * 1.3] : [low / 1.1, high * 1.1];
  if (!zoomed) low = Math.min(0, low);
  const padding = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return [low === 0 ? 0 : low - padding, high + padding];
}

/** All x of some lines in order, each once. */
export function allX(lines) {
  return [...new Set(lines.flatMap(({ x }) => x))].sort((one, other) => one - other);
}

/** The point of a line nearest to x, as { x, y, at }; null for an empty line. */
export function nearestPoint(line, x) {
  const at = nearestIndex(line.x, x);
  return at < 0 ? null : { x: line.x[at], y: line.y[at], at };
}

/** The range half as wide (or twice as wide) around x, inside the whole range; null for the whole. */
export function zoomedRange([from, to], [least, most], x, factor) {
  const width = (to - from) * factor;
  if (width >= most - least) return null;
  const start = Math.min(Math.max(least, x - width / 2), most - width);
  return [start, start + width];
}

/** The next x in a direction, `count` points away, inside a range; from no x, the first or last one. */
export function stepX(xs, x, count, [from, to]) {
  const inside = xs.filter((each) => each >= from && each <= to);
  if (!inside.length) return null;
  if (x === null) return count > 0 ? inside[0] : inside.at(-1);
  const at = nearestIndex(inside, x) + count;
  return inside[Math.max(0, Math.min(inside.length - 1, at))];
}

/** Tops of labels near the given heights, in the same order, moved so that they are `apart` and end above `bottom`. */
export function spread(heights, apart, bottom) {
  const order = heights.map((_, at) => at).sort((one, other) => heights[one] - heights[other]);
  const placed = [...heights];
  order.forEach((at, rank) => {
    if (rank) placed[at] = Math.max(placed[at], placed[order[rank - 1]] + apart);
  });
  for (let rank = order.length - 1, limit = bottom; rank >= 0; rank -= 1, limit -= apart) {
    placed[order[rank]] = Math.min(placed[order[rank]], limit);
  }
  return placed;
}
