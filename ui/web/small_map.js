// Draws a small attention map, without labels. A map is weights[row][column], each 0–1.

import { prepareCanvas } from "./canvas.js";
import { attentionColor } from "./colors.js";

/** The largest weight of each block of `size` times `size` cells. */
function largestOfBlocks(weights, size) {
  return Array.from({ length: Math.ceil(weights.length / size) }, (_, row) =>
    Array.from({ length: Math.ceil(weights[0].length / size) }, (_, column) =>
      Math.max(...weights.slice(row * size, (row + 1) * size).flatMap((each) => each.slice(column * size, (column + 1) * size)))));
}

/** Draw a map without labels, at most `side` pixels wide and high; cells that share a pixel show the strongest. */
export function drawThumbnail(canvas, map, side) {
  const size = Math.ceil(Math.max(map.length, map[0]?.length ?? 0) / side);
  const weights = size > 1 ? largestOfBlocks(map, size) : map;
  const rows = weights.length;
  const columns = weights[0]?.length ?? 0;
  if (!rows || !columns) return;
  const image = new ImageData(columns, rows);
  weights.forEach((row, r) => row.forEach((weight, c) =>
    image.data.set([...attentionColor(weight), 255], 4 * (r * columns + c))));
  const small = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  small.getContext("2d").putImageData(image, 0, 0);
  const cell = side / Math.max(rows, columns);
  const width = Math.max(12, columns * cell);
  const height = Math.max(12, rows * cell);
  const context = prepareCanvas(canvas, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, width, height);
}
