// Parallel coordinates: a vertical axis for each setting and for the goal, a line for each trial; the best are the most prominent.

import { fitText, inNextFrame, onAppearanceChange, prepareCanvas, themeColors } from "../../web/canvas.js";
import { attentionColor } from "../../web/colors.js";
import { make, setText } from "../../web/dom.js";
import { formatNumber } from "../../web/format.js";
import { labelOf, scaleOf, shareOn } from "./scales.js";

const HEIGHT = 300;
const TOP = 34; // for the names of the axes
const BOTTOM = 14;
const LEAST_GAP = 92; // pixels between two axes; narrower than that, the picture scrolls
const SIDE = 46;
const NEAR = 14; // pixels from a line that still point at it; a finger is not exact

/** The parts of a setting's key, the last of which names the axis. */
const shortName = (key) => key.split(".").at(-1);

/** Make the picture. `pick(name)` opens a trial. Returns { box, setData, select }. */
export function makeParallel({ pick }) {
  const canvas = make("canvas", { role: "img", tabindex: "0" });
  const readout = make("p", { class: "readout muted", role: "status" });
  const frame = make("div", { class: "wide", tabindex: "-1" }, canvas);
  const caption = make("p", { class: "muted" });
  const box = make("figure", { class: "parallel" }, make("h3", {}, "Trials"), frame, readout, caption);
  let data = null;
  let metric = "";
  let lines = []; // { name, points: [[x, y]], weight, isPruned }
  let scales = [];
  let pointed = null; // index of a line
  let selected = null; // name

  function layout(width) {
    const count = data.axes.length + 1;
    const gap = (width - 2 * SIDE) / Math.max(1, count - 1);
    const x = (at) => SIDE + at * gap;
    const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
    const measured = data.means.map((mean, at) => [mean, at]).filter(([mean, at]) => mean !== null && data.states[at] !== "pruned");
    const rank = new Map(measured.map(([, at], place) => [at, place])); // the trials come the best first
    lines = data.names.map((name, at) => {
      const points = data.axes.map((axis, column) => [x(column), y(shareOn(scales[column], data.values[column][at]))]);
      if (rank.has(at)) points.push([x(count - 1), y(shareOn(scales.at(-1), data.means[at]))]);
      return { name, at, points, rank: rank.get(at) ?? null, weight: rank.has(at) ? 1 - 0.75 * (rank.get(at) / Math.max(1, measured.length - 1)) : 0 };
    });
    return { x, y, count, gap };
  }

  function draw() {
    if (!data || !frame.clientWidth) return;
    const width = Math.max(frame.clientWidth, 2 * SIDE + data.axes.length * LEAST_GAP);
    const context = prepareCanvas(canvas, width, HEIGHT);
    const colors = themeColors();
    const { x, y, count, gap } = layout(width);
    const stroke = (line, style, thickness, dash = []) => {
      context.strokeStyle = style;
      context.lineWidth = thickness;
      context.setLineDash(dash);
      context.beginPath();
      line.points.forEach(([px, py], at) => (at ? context.lineTo(px, py) : context.moveTo(px, py)));
      context.stroke();
      context.setLineDash([]);
    };
    const ordered = [...lines].sort((one, other) => one.weight - other.weight);
    for (const line of ordered) stroke(line, line.rank === null ? colors.line : "rgb(" + attentionColor(line.weight) + ")", 1.4, line.rank === null ? [3, 3] : []);
    for (const line of lines.filter((each) => each.name === selected || each.at === pointed)) stroke(line, colors.text, 2.4);
    context.font = "12px " + colors.font;
    for (let at = 0; at < count; at++) {
      const scale = scales[at];
      context.strokeStyle = colors.muted;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x(at), y(0));
      context.lineTo(x(at), y(1));
      context.stroke();
      context.textAlign = "center";
      context.fillStyle = colors.text;
      const title = at < data.axes.length ? shortName(data.axes[at].key) : metric.replaceAll("_", " ");
      context.fillText(fitText(context, title, Math.max(60, Math.min(gap, 2 * SIDE) - 4)), x(at), 14);
      context.textAlign = at === count - 1 ? "right" : "left";
      const side = at === count - 1 ? -5 : 5;
      for (const [share, text] of scale.ticks) {
        const metrics = context.measureText(text).width;
        context.fillStyle = colors.background;
        context.globalAlpha = 0.8;
        context.fillRect(side > 0 ? x(at) + side - 1 : x(at) + side - metrics - 1, y(share) - 6, metrics + 2, 13);
        context.globalAlpha = 1;
        context.fillStyle = colors.muted;
        context.fillText(text, x(at) + side, y(share) + 4);
      }
    }
  }

  const redraw = inNextFrame(draw);

  function describe(index) {
    const settings = data.axes.map((axis, column) => shortName(axis.key) + " " + labelOf(axis, data.values[column][index]));
    const mean = data.means[index];
    const end = data.states[index] === "pruned" ? "pruned" : mean === null ? "no figure yet" : metric.replaceAll("_", " ") + " " + formatNumber(mean);
    return settings.join(", ") + ": " + end;
  }

  function point(index) {
    if (index === pointed) return;
    pointed = index;
    setText(readout, index === null ? "" : describe(index));
    redraw();
  }

  /** The index of the line that is nearest to a position; null if none is near. */
  function nearest(event) {
    const frameBox = canvas.getBoundingClientRect();
    const at = [event.clientX - frameBox.left, event.clientY - frameBox.top];
    let best = null;
    let least = NEAR;
    for (const line of lines) {
      for (let i = 1; i < line.points.length; i++) {
        const distance = distanceTo(at, line.points[i - 1], line.points[i]);
        if (distance < least) [best, least] = [line.at, distance];
      }
    }
    return best;
  }

  canvas.addEventListener("pointermove", (event) => point(nearest(event)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => {
    const index = nearest(event);
    if (index !== null) pick(data.names[index]);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      point(Math.min(data.names.length - 1, Math.max(0, (pointed ?? (step > 0 ? -1 : 1)) + step)));
    } else if (event.key === "Enter" && pointed !== null) pick(data.names[pointed]);
  });
  onAppearanceChange(frame, redraw);

  return {
    box,
    setData(trials, { metric: goal, minimize }) {
      const name = pointed === null ? null : data.names[pointed];
      data = trials;
      metric = goal;
      const means = trials.means.filter((mean, at) => mean !== null && trials.states[at] !== "pruned");
      const isLog = minimize && Math.min(...means) > 0 && Math.max(...means) / Math.min(...means) > 8;
      const goalAxis = { kind: isLog ? "log" : "number", low: means.length ? Math.min(...means) : 0, high: means.length ? Math.max(...means) : 1 };
      scales = [...trials.axes.map((axis) => scaleOf(axis)), scaleOf(goalAxis, { upsideDown: minimize })];
      pointed = name === null ? null : trials.names.indexOf(name);
      if (pointed === -1) pointed = null;
      canvas.setAttribute("aria-label", "Parallel coordinates of " + trials.names.length + " trials; the table below has all. "
        + "Arrow keys go through the trials from the best one on, Enter opens one.");
      setText(caption, "Each line is a trial; the best are the most prominent, and the better end of the goal is at the top. Dashed: pruned or without a figure. Click a line to open its run."
        + (trials.begun > trials.names.length ? " Drawn: the best trials and an even choice of the others, " + trials.names.length + " of " + trials.begun.toLocaleString("en") + "." : ""));
      redraw();
    },
    select(name) {
      selected = name;
      redraw();
    },
  };
}

function distanceTo([px, py], [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const along = Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - ax - along * dx, py - ay - along * dy);
}
