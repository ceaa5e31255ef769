// Draws one line chart on a canvas. A pure function of its data: screen and PNG are the same.
//
// A plot is { lines, from, to, log, fixed, format, xTitle, marks, cursor, selection, note, drawBelow, drawAbove, margin }:
//   lines      [{ label, steps, values, color, width, alpha, dash, dots, marker }]; lines without a label are not in the legend;
//              marker(context, x, y, color) draws the line's points in a shape of its own
//   from, to   the x values at the left and right edge
//   fixed      [low, high] of the y axis, or null to fit the visible values
//   format     formats a tick of the y axis;  xTitle: title of the x axis
//   marks      [{ step, label }] labeled ticks;  cursor: a step or null
//   selection  [step, step] while dragging;  note: text of an empty chart
//   drawBelow, drawAbove  draw(context, area, toX, toY, theme) before and after the lines;  margin: pixels on the right

// ---- axes ----

const X_TITLE_HEIGHT = 16; // pixels

/** Round values between low and high, about `count` of them. */
function linearTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const ticks = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k += 1) ticks.push(k * size);
  return ticks;
}

/** Powers of ten between low and high; also twice and five times them if there are fewer than three. */
function logTicks(low, high) {
  const inside = (factors) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const factor of factors) ticks.push(factor * 10 ** power);
    }
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  };
  const powers = inside([1]);
  if (powers.length >= 3) return powers.filter((_, at) => at % Math.ceil(powers.length / 6) === 0);
  const finer = inside([1, 2, 5]);
  return finer.length >= 2 ? finer : linearTicks(low, high, 4).filter((tick) => tick > 0);
}

/** A tick's label, without trailing zeros. */
function tickText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001) return value.toExponential(1).replace(".0e", "e");
  if (size >= 10000) return +(value / 1000).toPrecision(4) + "k";
  return String(+value.toPrecision(4));
}

/** Indices of the visible part of a line, with one neighbor on each side so that it reaches the edge. */
function visiblePart(line, from, to) {
  const first = Math.max(0, indexAtOrBefore(line.steps, from));
  return [first, Math.min(line.steps.length - 1, indexAtOrBefore(line.steps, to) + 1)];
}

/** Lowest and highest value of the y axis. */
function valueRange(plot) {
  if (plot.fixed) return plot.fixed;
  let low = Infinity;
  let high = -Infinity;
  for (const line of plot.lines) {
    const [first, last] = visiblePart(line, plot.from, plot.to);
    for (let at = first; at <= last; at += 1) {
      const value = line.values[at];
      if (value == null || (plot.log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return plot.log ? [0.1, 1] : [0, 1];
  if (plot.log) return high / low < 1.5 ? [low / 1.3, high * 1.3] : [low / 1.1, high * 1.1];
  if (!plot.zoomed) low = Math.min(0, low);
  const padding = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return [low === 0 ? 0 : low - padding, high + padding];
}

// ---- drawing ----

/** Draw the legend; returns its height. */
function drawLegend(context, lines, left, right, theme) {
  const sample = 26;
  let x = left;
  let y = 9;
  for (const line of lines.filter((each) => each.label)) {
    const width = sample + 6 + context.measureText(line.label).width;
    if (x > left && x + width > right) {
      x = left;
      y += 18;
    }
    strokeAs(context, { ...line, alpha: line.alpha && 0.75 }); // fainter samples would be invisible
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + sample, y);
    context.stroke();
    if (line.dots) (line.marker ?? dot)(context, x + sample / 2, y, line.color);
    unstroke(context);
    context.fillStyle = theme.text;
    context.fillText(line.label, x + sample + 6, y);
    x += width + 18;
  }
  return y + 14;
}

function strokeAs(context, line) {
  context.strokeStyle = line.color;
  context.lineWidth = line.width;
  context.globalAlpha = line.alpha ?? 1;
  context.lineJoin = "round";
  context.setLineDash(line.dash ?? []);
}

function unstroke(context) {
  context.globalAlpha = 1;
  context.setLineDash([]);
}

function dot(context, x, y, color) {
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, 2.5, 0, 2 * Math.PI);
  context.fill();
}

/** Draw one line. Of many points in one pixel column, only the first, lowest, highest and last are drawn. */
function drawLine(context, line, plot, toX, toY, columns) {
  const [first, last] = visiblePart(line, plot.from, plot.to);
  const dense = last - first > 3 * columns;
  let column = null; // { x, first, low, high, last } of the current pixel column
  let drawn = 0;
  const put = (x, y) => (drawn++ ? context.lineTo(x, y) : context.moveTo(x, y));
  const flush = () => {
    if (column) for (const y of [column.first, column.low, column.high, column.last]) put(column.x, y);
  };
  strokeAs(context, line);
  context.beginPath();
  let lone = null;
  for (let at = first; at <= last; at += 1) {
    const value = line.values[at];
    if (value == null || (plot.log && value <= 0)) continue;
    const x = toX(line.steps[at]);
    const y = toY(value);
    lone = lone === null ? [x, y] : undefined;
    if (!dense) put(x, y);
    else if (column && Math.floor(x) === Math.floor(column.x)) {
      column.low = Math.min(column.low, y);
      column.high = Math.max(column.high, y);
      column.last = y;
    } else {
      flush();
      column = { x, first: y, low: y, high: y, last: y };
    }
  }
  flush();
  context.stroke();
  unstroke(context);
  if (lone) (line.marker ?? dot)(context, ...lone, line.color); // a single point has no line
  if (line.dots && last - first < columns / 6) drawDots(context, line, plot, first, last, toX, toY);
}

function drawDots(context, line, plot, first, last, toX, toY) {
  for (let at = first; at <= last; at += 1) {
    const value = line.values[at];
    if (value == null || (plot.log && value <= 0)) continue;
    (line.marker ?? dot)(context, toX(line.steps[at]), toY(value), line.color);
  }
}

/** A short vertical tick from the top, with its label beside it on the side that has room. */
function drawMark(context, mark, x, area, theme) {
  context.strokeStyle = theme.text;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, area.top);
  context.lineTo(x, area.top + 12);
  context.stroke();
  const onLeft = x + 6 + context.measureText(mark.label).width > area.right;
  context.textAlign = onLeft ? "right" : "left";
  context.fillStyle = theme.text;
  context.fillText(mark.label, x + (onLeft ? -4 : 4), area.top + 7);
  context.textAlign = "left";
}

function drawAxes(context, plot, area, toX, toY, ticks, theme) {
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.textAlign = "right";
  for (const tick of ticks) {
    const y = Math.round(toY(tick)) + 0.5;
    context.beginPath();
    context.moveTo(area.left, y);
    context.lineTo(area.right, y);
    context.stroke();
    context.fillText(plot.format(tick), area.left - 6, y);
  }
  context.textAlign = "center";
  const steps = linearTicks(plot.from, plot.to, Math.max(2, (area.right - area.left) / 90));
  for (const tick of steps) context.fillText(tickText(tick), toX(tick), area.bottom + 12);
  if (plot.xTitle) context.fillText(plot.xTitle, (area.left + area.right) / 2, area.bottom + 12 + X_TITLE_HEIGHT);
  context.textAlign = "left";
}

// ---- plot ----

/** Draw a plot; returns its area, with `toStep(x)` for the pointer. */
function drawPlot(context, width, height, plot, theme) {
  context.clearRect(0, 0, width, height);
  context.font = "12px " + theme.font;
  context.textBaseline = "middle";
  const [low, high] = valueRange(plot);
  const scale = plot.log ? Math.log10 : (value) => value;
  const ticks = plot.log ? logTicks(low, high) : linearTicks(low, high, 5);
  const labels = Math.max(...ticks.map((tick) => context.measureText(plot.format(tick)).width), 20);
  const top = drawLegend(context, plot.lines, 0, width, theme);
  const overhang = context.measureText(tickText(plot.to)).width / 2 + 2; // the last label is centered on the edge
  const right = width - Math.max(12, overhang, plot.margin ?? 0);
  const area = { left: labels + 10, right, top: top + 6, bottom: height - 22 - (plot.xTitle ? X_TITLE_HEIGHT : 0) };
  const perStep = (area.right - area.left) / (plot.to - plot.from);
  const perValue = (area.bottom - area.top) / (scale(high) - scale(low));
  const toX = (step) => area.left + (step - plot.from) * perStep;
  const toY = (value) => area.bottom - (scale(value) - scale(low)) * perValue;
  drawAxes(context, plot, area, toX, toY, ticks, theme);

  context.save();
  context.beginPath();
  context.rect(area.left, area.top - 4, area.right - area.left + 4, area.bottom - area.top + 8);
  context.clip();
  plot.drawBelow?.(context, area, toX, toY, theme);
  for (const line of plot.lines) drawLine(context, line, plot, toX, toY, area.right - area.left);
  for (const mark of plot.marks ?? []) drawMark(context, mark, toX(mark.step), area, theme);
  if (plot.cursor != null) {
    context.strokeStyle = theme.muted;
    context.lineWidth = 1;
    context.strokeRect(Math.round(toX(plot.cursor)) + 0.5, area.top, 0, area.bottom - area.top);
  }
  if (plot.selection) {
    const [start, end] = plot.selection.map(toX);
    context.globalAlpha = 0.18;
    context.fillStyle = theme.accent;
    context.fillRect(start, area.top, end - start, area.bottom - area.top);
    context.globalAlpha = 1;
  }
  context.restore();
  plot.drawAbove?.(context, area, toX, toY, theme);
  if (plot.note) {
    context.fillStyle = theme.muted;
    context.textAlign = "center";
    context.fillText(plot.note, (area.left + area.right) / 2, (area.top + area.bottom) / 2);
    context.textAlign = "left";
  }
  area.toStep = (x) => plot.from + (Math.min(area.right, Math.max(area.left, x)) - area.left) / perStep;
  return area;
}
