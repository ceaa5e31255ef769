// The fold "Health": what heads, layers and updates do, by training step. Nothing is fetched while it is closed.

import { makeChart } from "../../web/chart.js";
import { inNextFrame } from "../../web/canvas.js";
import { make, setText } from "../../web/dom.js";
import { downloadCsv, fileName } from "../../web/files.js";
import { BLOCK_NAMES, formatNumber } from "../../web/format.js";
import { MARKS } from "../../web/head_marks.js";
import { nearestIndex } from "../../web/history.js";
import { feed, selection, shownStep } from "../../web/run_feed.js";
import { callServer } from "../../web/server.js";
import { emptyHealth, healthRows, mergeHealth, nameText } from "./health_history.js";

const RETRY_MS = 2000;
const COLORS = 8; // --series-1 …
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

// log: whether the axis is; fixed: the axis of a share; of: "head" and "layer" charts follow the select of blocks;
// fewStandOut: only the lines that end above twice the mean of all are named and colored.
const CHARTS = [
  { measure: "gradient_norm", title: "Gradient norm by part", caption: "before clipping, of the update before each evaluation", log: true },
  { measure: "update_size", title: "Update size by part", caption: "norm of the change ÷ norm of the weights; around 0.001 is usual", log: true },
  { measure: "perplexity", title: "Perplexity", caption: "exp of the loss of each evaluation; 1 is perfect", log: true },
  { measure: "layer_rms", title: "Size of each layer’s output", caption: "root mean square of the residual stream after the layer" },
  { measure: "logit_rms", title: "Size of the logits", caption: "root mean square over the reference answers; it grows as the model gets surer" },
  { measure: "fourier_power", title: "Fourier power of the number embeddings", caption: "share of each frequency; a few stand out when the numbers lie on circles", fewStandOut: true },
  { measure: "entropy_share", title: "Entropy of heads", caption: "0: all attention on one token · 1: uniform attention", fixed: [0, 1], of: "head" },
  { measure: "distance", title: "Attention distance of heads", caption: "tokens between query and key, weighted by attention", of: "head" },
  { measure: "change", title: "Change of heads", caption: "since the snapshot before · 0: unchanged · 1: other tokens only", fixed: [0, 1], of: "head" },
  { measure: "diversity", title: "Diversity of a layer’s heads", caption: "mean difference of two heads · 0: all attend alike · 1: all differ", fixed: [0, 1], of: "layer" },
  { measure: "induction", title: "Induction score of heads", caption: "random tokens, repeated: attention on the token after the earlier occurrence", fixed: [0, 1], of: "head" },
  { measure: "previous_token", title: "Previous-token score of heads", caption: "on the same tokens: attention on the token before", fixed: [0, 1], of: "head" },
];

const FAINT = { color: "--faint", width: 0.8 };

const styleOf = (at) => ({ color: "--series-" + ((at % COLORS) + 1), dash: DASHES[Math.floor(at / COLORS) % DASHES.length], width: 1.8 });

export function healthCharts(part, server) {
  const fold = part("health");
  let health = emptyHealth();
  let run = null; // the run of this health
  let seen = null; // run and step of the snapshot that the last answer was as new as
  let isAsking = false;
  let retryAt = 0;
  let figures = null;

  /** Make the charts when the fold is opened for the first time. */
  function makeFigures() {
    const place = part("health-charts");
    figures = CHARTS.map((chart) => {
      const plot = make("div", { class: "plot" });
      const reading = make("p", { class: "reading faint", "aria-live": "off" });
      const figure = make("figure", {}, make("figcaption", {}, make("strong", {}, chart.title), " ", make("span", { class: "faint" }, chart.caption)), plot, reading);
      place.append(figure);
      const lines = makeChart(plot, {
        label: chart.title + " by training step", series: [], group: "health", log: chart.log ?? false, fixed: chart.fixed ?? null,
        onCursor: (step, values) => setText(reading, step === null ? "" : "step " + stepAt(step).toLocaleString("en") + ": "
          + Object.entries(values).filter(([name]) => isNamed(chart, name))
            .map(([name, value]) => nameText(name) + " " + formatNumber(value)).join(" · ")),
      });
      return { chart, figure, lines };
    });
    setText(part("health-marks"), "Words under the map of a head. " + Object.values(MARKS).join(". ") + ". A head without a word is none of these.");
  }

  /** Whether a line of a chart has a name and a color of its own. */
  function isNamed(chart, name) {
    const of = health.series[chart.measure] ?? {};
    const last = Object.values(of).map((values) => values.at(-1) ?? 0);
    return !chart.fewStandOut || (of[name]?.at(-1) ?? 0) > (2 * last.reduce((sum, value) => sum + value, 0)) / last.length;
  }

  const stepAt = (x) => health.steps[nearestIndex(health.steps, x)] ?? 0;

  /** The blocks that the figures of heads are of. */
  const blocks = () => Object.keys(BLOCK_NAMES).filter((block) => Object.keys(health.series.entropy_share ?? {}).some((name) => name.startsWith(block + ".")));

  function showBlocks() {
    const select = part("health-block");
    const known = blocks();
    const key = known.join(" ");
    if (select.dataset.key !== key) {
      const chosen = select.value;
      select.dataset.key = key;
      select.replaceChildren(...known.map((block) => make("option", { value: block }, BLOCK_NAMES[block])));
      select.value = known.includes(chosen) ? chosen : known[0];
    }
    select.parentElement.hidden = known.length < 2;
  }

  function draw() {
    if (!fold.open || !figures) return;
    showBlocks();
    const block = part("health-block").value;
    const last = health.steps.at(-1) ?? 1;
    const note = feed.loading ? "loading" : feed.run === null ? "no run is chosen" : isAsking ? "loading" : "nothing recorded";
    for (const { chart, figure, lines } of figures) {
      const of = Object.entries(health.series[chart.measure] ?? {})
        .filter(([name]) => !chart.of || name.startsWith(block + "."))
        .filter(([, values]) => values.some((value) => value !== null));
      figure.hidden = !of.length && health.steps.length > 0; // this model has none, or the run is older than the measure
      const named = of.map(([name]) => name).filter((name) => isNamed(chart, name));
      lines.setSeries(of.map(([name]) => (named.includes(name)
        ? { key: name, label: of.length > 1 ? nameText(name) : null, ...styleOf(named.indexOf(name)) }
        : { key: name, ...FAINT })));
      lines.setData({
        from: 0, to: Math.max(1, last), cursor: selection.step === null ? null : shownStep(), stops: health.steps, note: of.length ? "" : note,
        lines: Object.fromEntries(of.map(([name, values]) => [name, { x: health.steps, y: values }])),
      });
    }
    setText(part("health-note"), noteText());
  }

  function noteText() {
    if (feed.run !== null && !isAsking && feed.steps.length && !health.steps.length && seen) return "This run was recorded without these figures; train it again to see them.";
    return health.byLayer ? "This model has many heads: figures of heads are means over each attention layer." : "";
  }

  const redraw = inNextFrame(draw);

  /** Request new values; a failed request is repeated a little later. */
  async function refresh() {
    const newest = feed.run + " " + feed.steps.length + " " + feed.steps.at(-1);
    if (!fold.open || feed.run === null || isAsking || newest === seen || Date.now() < retryAt) return;
    const asked = feed.run;
    isAsking = true;
    const answer = await callServer(server, "health", { run: asked, since: health.steps.at(-1) ?? -1 });
    isAsking = false;
    if (asked !== feed.run) return refresh();
    if (answer?.run !== asked) retryAt = Date.now() + RETRY_MS;
    else {
      health = mergeHealth(health, answer);
      seen = newest;
    }
    redraw();
  }

  function show() {
    if (run !== feed.run) [run, seen, health] = [feed.run, null, emptyHealth()];
    if (!fold.open) return;
    if (!figures) makeFigures();
    redraw();
    refresh();
  }

  fold.addEventListener("toggle", show);
  part("health-block").addEventListener("change", draw);
  part("health-csv").addEventListener("click", () =>
    downloadCsv(healthRows(health), fileName((feed.latest?.title ?? "run") + " health", "csv")));
  return show;
}
