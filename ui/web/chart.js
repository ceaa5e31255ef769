// A line chart on uPlot: legend, crosshair, zoom, keyboard, and a picture for downloads.
//
// A series is { key, label, color, width, dash, alpha, points, marker, band, endLabel }; all but key and color have defaults:
//   label      its name in the legend; without one it is not in the legend
//   color      a CSS variable such as "--train", a color, or a function that returns one, called with whether the theme is dark
//   dash, alpha, width   of the line, in pixels
//   points     whether each point has a marker, where there is room; marker: the path of an SVG around 0, 0
//   band       whether the band between `low` and `high` is drawn
//   endLabel   a letter at the right end of the line

import { inNextFrame } from "./canvas.js";
import { drawnPoints, nearestPoint } from "./chart_data.js";
import { DOT } from "./chart_drawing.js";
import { joinGroup } from "./chart_group.js";
import { columnsOf, makePlot } from "./chart_plot.js";
import { listenTo } from "./chart_pointer.js";
import { make, setText } from "./dom.js";
import { formatNumber } from "./format.js";
import { tickText } from "./ticks.js";

const NOTHING = { from: 0, to: 1, lines: {}, marks: [], shade: null, cursor: null, stops: null, note: "" };

const complete = (series) => series.map((each) => ({
  label: null, width: 2, dash: [], alpha: 1, points: false, marker: DOT, band: false, endLabel: null, ...each,
}));

/** The theme's colors at an element. */
function colorsAt(element, dark) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    dark, read, font: getComputedStyle(document.body).fontFamily,
    background: read("--background-fill-primary"), text: read("--body-text-color"), faint: read("--faint"), line: read("--line"),
  };
}

/** Call `draw` with the colors of the current theme, dark or light. */
function withTheme(dark, draw) {
  if (!dark) return draw(colorsAt(document.documentElement, false)); // the dark theme's colors begin at the body
  const sample = make("div", { class: "dark", hidden: true });
  document.body.append(sample);
  try {
    return draw(colorsAt(sample, true));
  } finally {
    sample.remove();
  }
}

/**
 * Make a chart that fills `box`.
 *
 * Options: label (its name for screen readers), series, xLabel, format (a tick of the y axis), exact (a value as text),
 * fixed ([low, high] of the y axis, or null to fit), log, group (a name: charts of one share cursor and zoom), height
 * (pixels, or null to fill the box), legend (whether there is one), and listeners:
 *   onCursor(x, values, xs)  where the crosshair is, or null: the nearest value of each series by key, and its x
 *   onZoom(range)            [from, to], or null if nothing is zoomed
 *   onPick(x)                pressing or dragging picks an x, instead of zooming
 *
 * The x of each line ascend; y may be null or NaN, and on a log axis only positive values are drawn.
 */
export function makeChart(box, {
  label, series, xLabel = "", format = tickText, exact = formatNumber, fixed = null, log = false, group = null,
  height = null, onCursor = null, onZoom = null, onPick = null, legend = true,
}) {
  let data = NOTHING;
  let plot = null; // the uPlot; null until the chart is visible
  let isStale = true; // the points changed since they were drawn
  const picture = { series: complete(series), points: [], log, fixed, format, xLabel, colors: null };

  // ---- elements ----

  const names = make("ul", { class: "chart-legend", hidden: true });
  const area = make("div", { class: "chart-plot", tabindex: "0", role: "img" });
  const announced = make("span", { class: "chart-announced", role: "status" });
  const element = make("div", { class: "line-chart" }, names, area, announced);
  if (height !== null) area.style.height = height + "px";
  area.classList.toggle("has-height", height !== null);
  area.classList.toggle("is-picked", onPick !== null);
  const keys = onPick ? "Left and right arrow keys choose a value." : "Arrow keys move a cursor, plus and minus zoom.";
  area.setAttribute("aria-label", label + ". " + keys);
  box.replaceChildren(element);

  // ---- state ----

  /** Bring the picture up to date with the data and the zoom. */
  function update() {
    const { marks, shade, cursor, note, from, to } = { ...NOTHING, ...data };
    const [first, last] = shared.zoom ?? [from, Math.max(to, from + 1)];
    Object.assign(picture, {
      marks, shade, cursor, note, from: first, to: last, zoomed: shared.zoom !== null, colors: colorsAt(element, isDark()),
    });
    if (isStale) picture.points = picture.series.map(({ key }) => drawnPoints(data.lines[key], picture.log));
  }

  const isDark = () => document.body.classList.contains("dark");

  /** The nearest point of each series to an x, by key. */
  function pointsAt(x) {
    const found = picture.series.map(({ key }, at) => [key, nearestPoint(picture.points[at] ?? { x: [] }, x)]);
    return Object.fromEntries(found.filter(([, point]) => point));
  }

  function readCursor() {
    const x = shared.cursor;
    const points = x === null ? {} : pointsAt(x);
    const of = (name) => Object.fromEntries(Object.entries(points).map(([key, point]) => [key, point[name]]));
    onCursor?.(x, of("y"), of("x"));
  }

  /** Announce the values at the cursor, only after a key press: pointer users see them without a screen reader. */
  function announce() {
    if (shared.cursor === null) return;
    const points = pointsAt(shared.cursor);
    const values = picture.series.filter(({ key, label }) => label && points[key])
      .map(({ key, label }) => label + " " + exact(points[key].y));
    setText(announced, [(xLabel ? xLabel + " " : "") + tickText(shared.cursor), ...values].join(", "));
  }

  // ---- drawing ----

  function draw() {
    const [width, tall] = [area.clientWidth, area.clientHeight];
    if (!width || !tall) return; // hidden
    update();
    if (!plot) {
      plot = makePlot(picture, { width, height: tall, cursorX: () => shared.cursor }, area);
    } else {
      plot.batch(() => {
        if (plot.width !== width || plot.height !== tall) plot.setSize({ width, height: tall });
        plot.setData(isStale ? columnsOf(picture.points) : plot.data);
      });
    }
    isStale = false;
    showCrosshair();
    if (shared.cursor !== null) readCursor(); // the values there may be new
  }

  const redraw = inNextFrame(draw);

  /** Make a new uPlot at the next drawing: lines and scale of one cannot change. */
  function rebuild() {
    plot?.destroy();
    plot = null;
    isStale = true;
    redraw();
  }

  function showCrosshair() {
    const x = shared.cursor;
    const left = x === null ? -10 : plot?.valToPos(x, "x");
    plot?.setCursor({ left: left >= 0 && left <= plot.over.clientWidth ? left : -10, top: 0 }, false);
  }

  // ---- cursor and zoom ----

  const shared = joinGroup(group, {
    cursorMoved() {
      showCrosshair();
      readCursor();
    },
    zoomed() {
      redraw();
      onZoom?.(shared.zoom);
    },
  });

  listenTo(area, {
    placeOf: (event) => {
      const { left, width } = (plot?.over ?? area).getBoundingClientRect();
      return Math.max(0, Math.min(width, event.clientX - left));
    },
    xAt: (place) => (plot ? plot.posToVal(place, "x") : data.from),
    xs: () => data.stops ?? plot?.data[0] ?? [],
    cursor: () => shared.cursor ?? (onPick ? data.cursor : null),
    zoom: () => shared.zoom,
    whole: () => [data.from, data.to],
    moveCursor: shared.moveCursor,
    zoomTo: shared.zoomTo,
    showSelection: (from, to) =>
      plot?.setSelect({ left: from, width: to - from, top: 0, height: plot.over.clientHeight }, false),
    pick: onPick,
    announce,
  });

  // ---- appearance ----

  const size = new ResizeObserver(redraw);
  size.observe(area);
  const theme = new MutationObserver(() => {
    showNames();
    redraw();
  });
  theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });

  async function showNames() {
    if (!legend) return;
    const { showLegend } = await import("./chart_legend.js");
    showLegend(names, picture.series);
  }

  showNames();

  return {
    element,
    /**
     * Show { lines: { key: { x, y, low, high } }, from, to, marks, shade, cursor, stops, note }: the range of x, labeled
     * x, a shaded range, a vertical line at an x, the x that the crosshair stops at (null: all points), and the text of
     * an empty chart.
     */
    setData(given) {
      data = { ...NOTHING, ...given };
      isStale = true;
      redraw();
    },
    setLog(isLog) {
      if (isLog === picture.log) return;
      picture.log = isLog;
      rebuild();
    },
    setSeries(given) {
      const next = complete(given);
      const isSame = JSON.stringify(next) === JSON.stringify(picture.series);
      picture.series = next;
      if (isSame) return;
      showNames();
      rebuild();
    },
    resetZoom: () => shared.zoomTo(null),
    redraw,
    /** The chart on a canvas of its own, with title and legend, at double resolution. */
    async toCanvas({ title, width, height: tall, dark = false }) {
      const { paintPicture } = await import("./chart_picture.js");
      return withTheme(dark, (colors) => {
        update();
        return paintPicture({ ...picture, colors, cursor: null }, title, width, tall);
      });
    },
    destroy() {
      plot?.destroy();
      plot = null;
      size.disconnect();
      theme.disconnect();
      shared.leave();
      element.remove();
    },
  };
}
