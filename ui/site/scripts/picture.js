// The picture of one attention map as a file; the program draws it with Matplotlib.

import { GOLD, attentionColor } from "../web/colors.js";

const [CELL, GAP, SCALE] = [44, 12, 2]; // pixels of a cell and around the map, and how much larger the file is
const FONT = "13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

/** Draw { title, rows, columns, weights, marked } on white; returns { png }, base64. */
export function drawPicture({ title, rows, columns, weights, marked }) {
  const context = document.createElement("canvas").getContext("2d");
  const { canvas } = context;
  context.font = FONT;
  const left = GAP + Math.max(...rows.map((row) => context.measureText(row).width)) + GAP;
  const lines = title.split("\n");
  const top = GAP + 20 * lines.length + 24;
  const widest = Math.max(left + columns.length * CELL, ...lines.map((line) => GAP + context.measureText(line).width)) + GAP;
  [canvas.width, canvas.height] = [widest, top + rows.length * CELL + GAP].map((size) => Math.ceil(SCALE * size));
  context.scale(SCALE, SCALE);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  Object.assign(context, { font: FONT, fillStyle: "#111", textBaseline: "middle" });
  lines.forEach((line, at) => context.fillText(line, GAP, GAP + 10 + 20 * at));
  context.textAlign = "right";
  rows.forEach((row, at) => context.fillText(row, left - 6, top + (at + 0.5) * CELL));
  context.textAlign = "center";
  columns.forEach((column, at) => context.fillText(column, left + (at + 0.5) * CELL, top - 12, CELL - 2));
  weights.forEach((row, y) => row.forEach((weight, x) => {
    context.fillStyle = "rgb(" + attentionColor(weight, "light") + ")";
    context.fillRect(left + x * CELL, top + y * CELL, CELL - 1, CELL - 1);
    context.fillStyle = weight > 0.5 ? "#fff" : "#111";
    context.fillText(weight.toFixed(2), left + (x + 0.5) * CELL, top + (y + 0.5) * CELL);
  }));
  Object.assign(context, { strokeStyle: GOLD, lineWidth: 2 });
  for (const [row, column] of marked) context.strokeRect(left + column * CELL + 1, top + row * CELL + 1, CELL - 3, CELL - 3);
  return { png: canvas.toDataURL("image/png").split(",")[1] };
}
