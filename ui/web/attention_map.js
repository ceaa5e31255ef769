// Draws attention maps on canvases. A map is weights[row][column], each 0–1.

import { fitText, prepareCanvas } from "./canvas.js";
import { GOLD, attentionColor, inkOn } from "./colors.js";
import { visibleToken } from "./format.js";

const LABEL_FONT = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
const SMALL_FONT = "10px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
const CELL = { least: 11, most: 56, withValue: 34 }; // pixels

/** Draw the color scale from 0 to 1. */
export function drawScale(canvas) {
  const context = prepareCanvas(canvas, 120, 10);
  for (let x = 0; x < 120; x += 1) {
    context.fillStyle = "rgb(" + attentionColor(x / 119) + ")";
    context.fillRect(x, 0, 1.5, 10);
  }
}

/** Labels of a row: the produced and the read token of a decoding step, or one token. */
export function rowParts(row) {
  const decoded = row.produced !== undefined;
  return { decoded, main: visibleToken(decoded ? row.produced : row.token), read: decoded ? visibleToken(row.read) : "" };
}

/** The row as one text, for downloads and tables. */
export function rowText(row) {
  return row.produced === undefined ? String(row.token) : row.produced + " ← " + row.read;
}

/**
 * Layout of a map in `room` pixels: `names` is the width of the row labels, `head` the height of the column labels.
 * Maps shown one after another in the same element have the same layout if `value.reserve` { tokens, rows, columns }
 * describes the largest of them.
 */
export function layoutMap(context, value, room) {
  context.font = LABEL_FONT;
  const widest = (texts, most) =>
    Math.min(most, Math.max(0, ...texts.map((text) => Math.ceil(context.measureText(text).width))));
  const parts = value.rows.map(rowParts);
  const decoded = parts.some((each) => each.decoded);
  const labelRoom = room < 500 ? 64 : 110;
  const tokens = (value.reserve?.tokens ?? []).map(visibleToken);
  const mainWidth = Math.max(widest([...parts.map((each) => each.main), ...tokens], labelRoom), decoded ? 56 : 0);
  context.font = SMALL_FONT;
  const read = [...parts.map((each) => each.read), ...tokens].map((token) => "← " + token);
  const readWidth = decoded ? Math.max(widest(read, labelRoom), 62) + 6 : 0;
  context.font = LABEL_FONT;
  const names = mainWidth + readWidth + 10;
  const columns = value.columns.map(visibleToken);
  const most = Math.max(columns.length, value.reserve?.columns ?? 0);
  const cell = Math.floor(Math.max(CELL.least, Math.min(CELL.most, (room - names - 4) / most)));
  const upright = widest(columns, 1000) <= cell - 4; // labels that do not fit are rotated
  const head = upright ? 22 : Math.max(22, widest(columns, 110) + 10);
  return {
    parts, decoded, columns, cell, upright, mainWidth, names, head,
    width: columns.length * cell + 2, height: head + parts.length * cell + 2,
    reserved: head + Math.max(parts.length, value.reserve?.rows ?? 0) * cell + 2, // height of the largest map
  };
}

/** Draw the labels of the first `revealed` rows: the produced token and, smaller, the read one. */
export function drawRowNames(canvas, layout, value, revealed, theme) {
  const context = prepareCanvas(canvas, layout.names, layout.height);
  context.textBaseline = "middle";
  if (layout.decoded) {
    context.font = SMALL_FONT;
    context.fillStyle = theme.muted;
    context.textAlign = "right";
    context.fillText("produced", layout.mainWidth, layout.head - 8);
    context.textAlign = "left";
    context.fillText("← previous", layout.mainWidth + 6, layout.head - 8);
  }
  layout.parts.slice(0, revealed).forEach((each, row) => {
    const y = layout.head + (row + 0.5) * layout.cell;
    const chosen = row === value.row;
    context.font = (chosen ? "bold " : "") + (layout.cell < 14 ? SMALL_FONT : LABEL_FONT);
    context.fillStyle = chosen ? theme.accent : theme.text;
    context.textAlign = "right";
    context.fillText(fitText(context, each.main, layout.mainWidth), layout.mainWidth, y);
    if (!each.decoded) return;
    context.font = SMALL_FONT;
    context.fillStyle = theme.muted;
    context.textAlign = "left";
    context.fillText(fitText(context, "← " + each.read, layout.names - layout.mainWidth - 10), layout.mainWidth + 6, y);
  });
}

function drawColumnNames(context, layout, theme) {
  context.font = layout.cell < 14 ? SMALL_FONT : LABEL_FONT;
  context.fillStyle = theme.text;
  context.textBaseline = "middle";
  layout.columns.forEach((name, column) => {
    context.save();
    context.translate((column + 0.5) * layout.cell, layout.head - 7);
    if (layout.upright) context.textAlign = "center";
    else context.rotate(-Math.PI / 2);
    context.fillText(layout.upright ? name : fitText(context, name, layout.head - 10), 0, layout.upright ? -2 : 0);
    context.restore();
  });
}

/** Outline `span` cells of a row. */
function outline(context, layout, row, column, span, color, width, dash = []) {
  context.strokeStyle = color;
  context.setLineDash(dash);
  context.lineWidth = width;
  const inset = width / 2;
  context.strokeRect(column * layout.cell + inset, layout.head + row * layout.cell + inset,
    span * layout.cell - width, layout.cell - width);
}

/** Draw the first `revealed` rows of a map with column labels, values if they fit, and outlines. */
export function drawMap(canvas, layout, value, weights, { showGold, cursor, revealed }, theme) {
  const context = prepareCanvas(canvas, layout.width, layout.height);
  const { cell, head } = layout;
  drawColumnNames(context, layout, theme);
  const gap = cell >= 16 ? 1 : 0;
  context.fillStyle = theme.line;
  context.fillRect(0, head, layout.width - 2, revealed * cell);
  context.font = "11px " + theme.font;
  context.textAlign = "center";
  context.textBaseline = "middle";
  weights.slice(0, revealed).forEach((row, r) => row.forEach((weight, c) => {
    context.fillStyle = "rgb(" + attentionColor(weight) + ")";
    context.fillRect(c * cell, head + r * cell, cell - gap, cell - gap);
    if (cell < CELL.withValue) return;
    context.fillStyle = inkOn(weight);
    context.fillText(weight.toFixed(2), (c + 0.5) * cell, head + (r + 0.5) * cell);
  }));
  if (showGold) {
    for (const [row, column] of value.goldCells) {
      if (row < revealed) outline(context, layout, row, column, 1, GOLD, 1.5, cell < 20 ? [] : [5, 3]);
    }
  }
  if (value.row != null) outline(context, layout, value.row, 0, layout.columns.length, theme.accent, 2);
  if (value.cell) outline(context, layout, value.cell.row, value.cell.column, 1, theme.accent, 3);
  if (cursor) outline(context, layout, cursor.row, cursor.column, 1, "#facc15", 3);
}
