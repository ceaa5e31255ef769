// A chart as a picture for downloads, with title and legend.

import { fitText } from "./canvas.js";
import { colorOf, makePlot } from "./chart_plot.js";
import { make } from "./dom.js";
import uPlot from "./vendor/uPlot.js";

const EXPORT = { resolution: 2, margin: 16, title: 26, row: 18 }; // pixels

/** Paint title, legend and plot on a canvas. */
export function paintPicture(picture, title, width, height) {
  const { resolution, margin } = EXPORT;
  const canvas = make("canvas", { width: resolution * width, height: resolution * height });
  const context = canvas.getContext("2d");
  context.scale(resolution, resolution);
  context.fillStyle = picture.colors.background;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "middle";
  context.fillStyle = picture.colors.text;
  context.font = "600 14px " + picture.colors.font;
  context.fillText(fitText(context, title, width - 2 * margin), margin, margin + 4);
  const top = margin + EXPORT.title + paintLegend(context, picture, margin + EXPORT.title, width);
  const inner = { width: resolution * (width - 2 * margin), height: resolution * (height - top - margin) };
  const plot = makePlot(picture, { ...inner, width: inner.width / uPlot.pxRatio, height: inner.height / uPlot.pxRatio,
    scale: resolution / uPlot.pxRatio });
  context.drawImage(plot.ctx.canvas, margin, top, width - 2 * margin, height - top - margin);
  plot.destroy();
  return canvas;
}

/** Paint the legend in rows from `top`; returns its height. */
function paintLegend(context, { series, colors }, top, width) {
  const [sample, gap] = [28, 18];
  context.font = "12px " + colors.font;
  let [x, y] = [EXPORT.margin, top];
  const named = series.filter((each) => each.label);
  for (const each of named) {
    const text = fitText(context, each.label, width - 2 * EXPORT.margin - sample - 6);
    const wide = sample + 6 + context.measureText(text).width;
    if (x > EXPORT.margin && x + wide > width - EXPORT.margin) [x, y] = [EXPORT.margin, y + EXPORT.row];
    context.strokeStyle = context.fillStyle = colorOf(each, colors);
    context.lineWidth = each.width;
    context.setLineDash(each.dash);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + sample, y);
    context.stroke();
    context.setLineDash([]);
    if (each.points) {
      context.save();
      context.translate(x + sample / 2, y);
      context.fill(new Path2D(each.marker));
      context.restore();
    }
    context.fillStyle = colors.text;
    context.fillText(text, x + sample + 6, y);
    x += wide + gap;
  }
  return named.length ? y - top + EXPORT.row : 0;
}
