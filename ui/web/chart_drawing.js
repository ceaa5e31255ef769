// Drawings of a chart besides lines and axes: bands, a shaded range, markers, marks, names at the lines' ends.
//
// An area is { left, right, top, bottom, toX, toY } in CSS pixels: where the axes are, and where values lie.

import { fitText } from "./canvas.js";
import { spread, visiblePart } from "./chart_data.js";

export const DOT = "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0z"; // the marker of a point
export const FONT_SIZE = 11; // pixels
const PIXELS_PER_MARKER = 6; // closer points are drawn as a line only
const END_LABEL_HEIGHT = 13; // pixels

/** Clip the drawing of `draw` to the area. */
function inside(context, area, draw) {
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  context.clip();
  draw();
  context.restore();
}

/** A shaded range of x with its label at the bottom. */
export function drawShade(context, area, shade, colors) {
  inside(context, area, () => {
    const [left, right] = [Math.max(area.left, area.toX(shade.from)), Math.min(area.right, area.toX(shade.to))];
    if (right <= left) return;
    context.globalAlpha = 0.1;
    context.fillStyle = colors.text;
    context.fillRect(left, area.top, right - left, area.bottom - area.top);
    context.globalAlpha = 1;
    context.fillStyle = colors.faint;
    context.textAlign = "center";
    context.fillText(fitText(context, shade.label, right - left), (left + right) / 2, area.bottom - 9);
  });
}

/** The band between a line's low and high. */
export function drawBand(context, area, points, color) {
  const known = points.x.map((_, at) => at).filter((at) => points.low[at] !== null && points.high[at] !== null);
  if (known.length < 2) return;
  inside(context, area, () => {
    context.beginPath();
    for (const at of known) context.lineTo(area.toX(points.x[at]), area.toY(points.high[at]));
    for (const at of known.reverse()) context.lineTo(area.toX(points.x[at]), area.toY(points.low[at]));
    context.closePath();
    context.globalAlpha = 0.18;
    context.fillStyle = color;
    context.fill();
  });
}

/** A marker at each point of a line, if they are far enough apart; a single point always has its marker. */
export function drawMarkers(context, area, points, { marker, points: hasMarkers }, color, [from, to]) {
  const [first, last] = visiblePart(points, from, to);
  const isSparse = last - first < (area.right - area.left) / PIXELS_PER_MARKER;
  if (points.x.length !== 1 && !(hasMarkers && isSparse)) return;
  const path = new Path2D(marker);
  context.fillStyle = color;
  for (let at = first; at <= last; at += 1) {
    if (points.x[at] < from || points.x[at] > to) continue;
    context.save();
    context.translate(area.toX(points.x[at]), area.toY(points.y[at]));
    context.fill(path);
    context.restore();
  }
}

/** A short vertical line from the top, with its label beside it on the side that has room. */
export function drawMark(context, area, mark, colors) {
  const x = area.toX(mark.x);
  if (x < area.left || x > area.right) return;
  context.strokeStyle = context.fillStyle = colors.text;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, area.top);
  context.lineTo(x, area.top + 12);
  context.stroke();
  const onLeft = x + 6 + context.measureText(mark.label).width > area.right;
  context.textAlign = onLeft ? "right" : "left";
  context.fillText(mark.label, x + (onLeft ? -4 : 4), area.top + 7);
}

/** A vertical line at an x. */
export function drawCursor(context, area, x, colors) {
  const at = Math.round(area.toX(x)) + 0.5;
  if (at < area.left - 1 || at > area.right + 1) return;
  context.strokeStyle = colors.faint;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(at, area.top);
  context.lineTo(at, area.bottom);
  context.stroke();
}

/** The names of lines at their right ends [{ text, x, y, color }], moved apart where they would overlap. */
export function drawEndLabels(context, area, ends, colors) {
  context.font = "600 12px " + colors.font;
  context.textAlign = "left";
  const heights = spread(ends.map((end) => area.toY(end.y)), END_LABEL_HEIGHT, area.bottom);
  ends.forEach((end, at) => {
    context.fillStyle = end.color;
    context.fillText(end.text, area.toX(end.x) + 7, heights[at]);
  });
}

/** A text in the middle of an empty chart. */
export function drawNote(context, area, note, colors) {
  context.fillStyle = colors.faint;
  context.textAlign = "center";
  context.fillText(fitText(context, note, area.right - area.left), (area.left + area.right) / 2, (area.top + area.bottom) / 2);
}
