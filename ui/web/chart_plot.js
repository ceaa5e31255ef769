// The uPlot of a chart: its options, computed from the chart's content. A picture is the content of a chart: { series,
// points, from, to, zoomed, log, fixed, format, xLabel, marks, shade, cursor, note, colors }, with one { x, y, low,
// high } in `points` for each series. It is read at each drawing.

import { nearestPoint, valueRange } from "./chart_data.js";
import {
  FONT_SIZE, drawBand, drawCursor, drawEndLabels, drawMark, drawMarkers, drawNote, drawShade,
} from "./chart_drawing.js";
import { indexAtOrBefore } from "./history.js";
import { linearTicks, logTicks, tickText } from "./ticks.js";
import uPlot from "./vendor/uPlot.js";

const LABEL_GAP = 6; // pixels
const Y_LABELS = 36; // pixels for the labels of the y axis, at least
const PIXELS_PER_X_TICK = 64;
const PIXELS_PER_Y_TICK = 34;
const NO_MOUSE = Object.fromEntries(
  ["mousedown", "mouseup", "click", "dblclick", "mousemove", "mouseleave", "mouseenter"].map((name) => [name, () => null]));

/** The color of a series in a theme. */
export function colorOf({ color }, colors) {
  if (typeof color === "function") return color(colors.dark);
  return color.startsWith("--") ? colors.read(color) : color;
}

/** The columns that uPlot draws: all x, then the y of each series there. */
export function columnsOf(points) {
  return points.length ? uPlot.join(points.map(({ x, y }) => [x, y])) : [[]];
}

const xTicks = ({ from, to }, width) => linearTicks(from, to, Math.max(2, width / PIXELS_PER_X_TICK), 1);

/**
 * Make a uPlot of a picture. `scale` enlarges everything in it, such as lines and texts.
 *
 * `cursorX()` is the x of the crosshair.
 */
export function makePlot(picture, { width, height, scale = 1, cursorX = () => null }, parent) {
  const size = (pixels) => Math.round(scale * pixels);
  const ruler = document.createElement("canvas").getContext("2d");
  const textWidth = (text) => {
    ruler.font = FONT_SIZE + "px " + picture.colors.font;
    return ruler.measureText(text).width;
  };
  const draw = (plot, paint) => {
    const factor = scale * uPlot.pxRatio;
    const { left, top, width: wide, height: high } = plot.bbox;
    const context = plot.ctx;
    context.save();
    context.setTransform(factor, 0, 0, factor, 0, 0);
    context.font = FONT_SIZE + "px " + picture.colors.font;
    context.textBaseline = "middle";
    context.setLineDash([]); // uPlot leaves that of the last line
    paint(context, {
      left: left / factor, right: (left + wide) / factor, top: top / factor, bottom: (top + high) / factor,
      toX: (x) => plot.valToPos(x, "x", true) / factor,
      toY: (y) => plot.valToPos(picture.log && y <= 0 ? plot.scales.y.min : y, "y", true) / factor,
    });
    context.restore();
  };
  const seriesColor = (_, at) => colorOf(picture.series[at - 1], picture.colors);
  const hasEndLabels = picture.series.some((each) => each.endLabel);
  const axis = {
    stroke: () => picture.colors.faint, font: size(FONT_SIZE) + "px " + picture.colors.font, gap: size(LABEL_GAP),
    ticks: { show: false }, border: { show: false },
  };

  /** Pixels right of the axes: for the last label of the x axis, which is centered on its tick, and for end labels. */
  function rightPadding(plot) {
    const { from, to } = picture;
    const inner = (plot.width || 0) / scale - Y_LABELS;
    const last = xTicks(picture, inner).at(-1);
    const overhang = last === undefined ? 0 : textWidth(tickText(last)) / 2 - ((to - last) / (to - from)) * inner;
    return size(Math.max(6, overhang + 2, hasEndLabels ? 22 : 0));
  }

  const options = {
    width, height,
    padding: [size(8), rightPadding, 0, 0],
    legend: { show: false },
    scales: {
      x: { time: false, range: () => [picture.from, picture.to] },
      y: { distr: picture.log ? 3 : 1, range: () => picture.fixed ?? valueRange(picture.points, picture) },
    },
    axes: [
      {
        ...axis, size: size(FONT_SIZE + LABEL_GAP + 3), grid: { show: false },
        label: picture.xLabel || null, labelSize: size(FONT_SIZE + 4), labelGap: 0, labelFont: axis.font,
        splits: (plot) => xTicks(picture, plot.bbox.width / uPlot.pxRatio / scale),
        values: (_, ticks) => ticks.map(tickText),
      },
      {
        ...axis, grid: { stroke: () => (picture.note ? "transparent" : picture.colors.line), width: scale }, // or one would strike the note through
        size: (_, labels) => size(Math.max(Y_LABELS, ...(labels ?? []).map((label) => textWidth(label) + LABEL_GAP + 2))),
        splits: (plot, _, low, high) => {
          const count = Math.max(2, Math.min(5, Math.floor(plot.bbox.height / uPlot.pxRatio / scale / PIXELS_PER_Y_TICK)));
          return picture.log ? logTicks(low, high, count + 1) : linearTicks(low, high, count);
        },
        filter: (_, ticks) => ticks,
        values: (_, ticks) => ticks.map(picture.format),
      },
    ],
    series: [{}, ...picture.series.map((each) => ({
      stroke: seriesColor, width: each.width * scale, dash: each.dash.map((length) => length * scale * uPlot.pxRatio),
      alpha: each.alpha, spanGaps: true, points: { show: false },
    }))],
    cursor: {
      x: true, y: false, bind: NO_MOUSE, drag: { x: false, y: false, setScale: false, click: () => null },
      points: { size: 7, width: 1.5, stroke: seriesColor, fill: seriesColor },
      dataIdx: (plot, at, nearest) => {
        const point = at && cursorX() !== null ? nearestPoint(picture.points[at - 1], cursorX()) : null;
        return at === 0 ? nearest : point && indexAtOrBefore(plot.data[0], point.x);
      },
    },
    hooks: {
      drawAxes: [(plot) => draw(plot, (context, area) => {
        if (picture.shade) drawShade(context, area, picture.shade, picture.colors);
        picture.series.forEach((each, at) => {
          if (each.band && picture.points[at].low) drawBand(context, area, picture.points[at], seriesColor(plot, at + 1));
        });
      })],
      drawSeries: [(plot, at) => draw(plot, (context, area) =>
        drawMarkers(context, area, picture.points[at - 1], picture.series[at - 1], seriesColor(plot, at), [picture.from, picture.to]))],
      draw: [(plot) => draw(plot, (context, area) => {
        for (const mark of picture.marks) drawMark(context, area, mark, picture.colors);
        if (picture.cursor !== null) drawCursor(context, area, picture.cursor, picture.colors);
        if (picture.note) drawNote(context, area, picture.note, picture.colors);
        if (hasEndLabels) drawEndLabels(context, area, endsOf(picture), picture.colors);
      })],
    },
  };
  const plot = new uPlot(options, columnsOf(picture.points), parent);
  plot.batch(() => null); // draws now, not later
  return plot;
}

/** The ends, inside the range, of lines with a name at their end. */
function endsOf({ series, points, from, to, colors }) {
  return series.flatMap((each, at) => {
    const last = indexAtOrBefore(points[at].x, to);
    if (!each.endLabel || last < 0 || points[at].x[last] < from) return [];
    return [{ text: each.endLabel, x: points[at].x[last], y: points[at].y[last], color: colorOf(each, colors) }];
  });
}
