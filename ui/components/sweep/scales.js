// Scales of a sweep's axes: the position of a value from 0 to 1, and the labels of an axis.

import { formatNumber } from "../../web/format.js";

const TICKS = 5;

const written = (value) => (Number.isInteger(value) ? String(value) : formatNumber(value));

/**
 * The scale of an axis { kind: "number" | "log" | "labels", low, high, ticks, labels }; `upsideDown` puts the lowest value at 1.
 * Returns { of(value), ticks: [[share, text]] }.
 */
export function scaleOf(axis, { upsideDown = false } = {}) {
  const turned = (share) => (upsideDown ? 1 - share : share);
  if (axis.kind === "labels") {
    const last = axis.labels.length - 1;
    const of = (index) => turned(last > 0 ? index / last : 0.5);
    return { of, ticks: axis.labels.map((label, index) => [of(index), label]) };
  }
  const isLog = axis.kind === "log";
  const [low, high] = isLog ? [Math.log(axis.low), Math.log(axis.high)] : [axis.low, axis.high];
  const of = (value) => turned(high > low ? ((isLog ? Math.log(value) : value) - low) / (high - low) : 0.5);
  if (axis.ticks) return { of, ticks: axis.ticks.map((value) => [of(value), written(value)]) };
  const count = high > low ? TICKS : 1;
  const ticks = Array.from({ length: count }, (_, at) => {
    const share = count > 1 ? at / (count - 1) : 0.5;
    const value = isLog ? Math.exp(low + share * (high - low)) : low + share * (high - low);
    return [turned(share), written(axis.whole ? Math.round(value) : value)];
  });
  return { of, ticks };
}

/** Where a value lies on a scale, from 0 to 1. */
export const shareOn = (scale, value) => (value === null ? 0 : Math.min(1, Math.max(0, scale.of(value))));

/** A value of an axis as text. */
export const labelOf = (axis, value) => (axis.kind === "labels" ? axis.labels[value] : written(value));
