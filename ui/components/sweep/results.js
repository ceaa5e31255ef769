// A sweep that was begun: its progress, pictures of its trials, the table, and the trial that is open.

import { onAppearanceChange } from "../../web/canvas.js";
import { make, setText } from "../../web/dom.js";
import { download } from "../../web/files.js";
import { formatNumber, formatSeconds } from "../../web/format.js";
import { openTab } from "../../web/navigation.js";
import { makeSeriesChart } from "../../web/series_chart.js";
import { callServer } from "../../web/server.js";
import { makeHeatMap, makeImportance } from "./effects.js";
import { makeParallel } from "./parallel.js";

const CURVES = 4; // of the best trials
const SLOWLY_MS = 4000; // between two requests for curves and rows while the sweep trains
const FILE_SECONDS = 60; // the intervals of a thousand trials take a while
const LETTERS = "ABCDEFGH";
const counted = (number) => number.toLocaleString("en");
const NO_ANSWER = "No answer from the server.";

/** Build the view in an element; `pick(run)` makes a run the current one. Returns { show, clear }. */
export function makeResults(place, { server, pick, jobs, edit, say }) {
  const heading = make("h3", { class: "heading" });
  const plan = make("p", { class: "muted plan-line" });
  const status = make("p", { class: "state", role: "status" });
  const bar = make("progress", { max: "1", value: "0", "aria-label": "runs that have ended" });
  const best = make("p", { class: "best" });
  const stop = make("button", { type: "button", class: "stop", onclick: () => act("stop", stop) }, "Stop");
  const resume = make("button", { type: "button", class: "main resume", onclick: () => act("resume", resume, { jobs: jobs() }) }, "Continue");
  const more = make("button", { type: "button", class: "edit", onclick: () => edit(sweep) }, "Edit or extend");
  const trialPanel = make("section", { class: "trial", hidden: true, "aria-label": "the open trial" });
  const parallel = makeParallel({ pick: openTrial });
  const importance = makeImportance();
  const heatMap = makeHeatMap({ server });
  const charts = make("div", { class: "curves" });
  const table = make("table");
  const pages = make("div", { class: "tools" });
  const files = make("div", { class: "tools" }, ...[["csv", "CSV"], ["latex", "LaTeX"]].map(([format, label]) =>
    make("button", { type: "button", title: "download the whole table", onclick: () => saveTable(format) }, label)));
  const tableBox = make("section", {}, make("h3", {}, "Table"),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "trials of the sweep" }, table), pages, files,
    make("p", { class: "muted" }, "The best trials first, by the mean over their seeds on the validation set. An interval holds for a single trial: with many trials, the best one is partly lucky."));
  const pictures = make("div", { class: "pictures" }, parallel.box, make("div", { class: "two" }, importance.box, heatMap.box), charts);
  const soon = make("p", { class: "muted", hidden: true }, "Pictures appear when the first trial is finished.");
  place.append(heading, plan, make("div", { class: "tools" }, stop, resume, more), bar, status, best, trialPanel, soon, pictures, tableBox);
  onAppearanceChange(pictures, () => heatMap.redraw());

  let sweep = null;
  let latest = null; // the last progress
  let trials = null;
  let start = 0; // of the rows that are shown
  let opened = null; // name of the open trial
  let chart = null;
  let drawnAt = 0;
  let drawnVersion = "";

  // ---- progress ----

  function statusText({ status: now, counts, runs, training, jobs: wanted, room, seconds_left: left, error }) {
    const ended = counts.complete + counts.pruned + counts.stopped + counts.failed;
    const parts = [counted(ended) + " of " + counted(counts.total) + " trials finished"];
    for (const each of ["pruned", "stopped", "failed", "running", "waiting"]) {
      if (counts[each]) parts.push(counted(counts[each]) + " " + each);
    }
    if (counts.total !== runs.total) parts.push(counted(runs.done) + " of " + counted(runs.total) + " runs done");
    if (now === "training") {
      parts.push(training === 1 ? "1 run training" : training + " runs training");
      if (left !== null) parts.push("about " + formatSeconds(left) + " left");
      if (room < wanted) parts.push(room ? "your own trainings use the other cores" : "waiting: your own trainings use all cores");
    } else if (now === "stopping") parts.push("saving …");
    else if (now === "elsewhere") parts.push("training in another program: " + training);
    else if (error) parts.push(error);
    return parts.join(" · ");
  }

  function showProgress(progress) {
    const { counts, status: now } = progress;
    const ended = counts.complete + counts.pruned + counts.stopped + counts.failed;
    setText(heading, progress.sweep);
    setText(plan, progress.plan);
    setText(status, statusText(progress));
    bar.max = Math.max(1, ended + counts.running + counts.waiting); // fewer than the total, if no others could be drawn
    bar.value = ended;
    const isOver = counts.waiting === 0 && counts.running === 0;
    stop.hidden = !["training", "stopping"].includes(now);
    stop.disabled = now === "stopping";
    setText(stop, now === "stopping" ? "Stopping …" : "Stop");
    resume.hidden = !["idle", "elsewhere"].includes(now) || (isOver && !counts.failed);
    setText(resume, isOver ? "Try the failed runs again" : "Continue");
    more.hidden = now !== "idle";
    const goal = progress.metric.replaceAll("_", " ");
    best.hidden = !progress.best;
    if (progress.best) {
      const { text, mean, sd, n } = progress.best;
      const button = make("button", { type: "button", class: "link", onclick: () => openTrial(progress.best.trial) }, text);
      const key = JSON.stringify(progress.best);
      if (best.dataset.key !== key) best.replaceChildren("Best so far: ", button, " with " + goal + " " + formatNumber(mean) + (sd === null ? "" : " ± " + formatNumber(sd) + " over " + n + " seeds"));
      best.dataset.key = key;
    }
  }

  /** Show an answer of the server; returns the version of the trials that are drawn. */
  function show(progress) {
    const isOther = sweep !== progress.sweep;
    if (isOther) clear();
    sweep = progress.sweep;
    latest = progress;
    showProgress(progress);
    if (progress.trials) {
      trials = progress.trials;
      tableBox.hidden = trials.begun === 0;
      pictures.hidden = trials.measured === 0;
      soon.hidden = !pictures.hidden;
      parallel.setData(trials, progress);
      importance.setData(trials);
    }
    const isDue = isOther || progress.status === "idle" || Date.now() - drawnAt > SLOWLY_MS;
    if (trials?.begun && drawnVersion !== progress.version && isDue) {
      drawnAt = Date.now();
      drawnVersion = progress.version;
      if (trials.measured) {
        heatMap.setData(trials, progress);
        showCurves();
      }
      showRows();
      if (opened) showTrial();
    }
    return progress.version;
  }

  function clear() {
    opened = null;
    start = 0;
    drawnVersion = "";
    trials = null;
    trialPanel.hidden = true;
    parallel.select(null);
    pictures.hidden = tableBox.hidden = soon.hidden = true;
  }

  async function act(name, button, more = {}) {
    button.disabled = true;
    const answer = await callServer(server, name, { sweep, ...more }, 30);
    button.disabled = false;
    say(answer?.error ?? (answer ? "" : NO_ANSWER));
  }

  // ---- curves ----

  async function showCurves() {
    const names = trials.names.filter((_, at) => trials.means[at] !== null && trials.states[at] !== "pruned").slice(0, CURVES);
    if (opened && !names.includes(opened)) names.push(opened);
    if (!names.length) return;
    const asked = sweep;
    const answer = await callServer(server, "curves", { sweep, trials: names });
    if (asked !== sweep || !answer?.curves) return;
    chart?.destroy();
    chart = null;
    charts.replaceChildren();
    if (!answer.curves.length) return;
    const isLoss = answer.metric.endsWith("loss");
    chart = makeSeriesChart({
      title: "Curves of the best trials", xTitle: "step", name: String, log: isLoss, canBeLog: isLoss, exact: formatNumber, group: "sweep-curves",
      caption: answer.metric.replaceAll("_", " ") + " on the validation set by training step" + (answer.curves.some(({ seeds }) => seeds > 1) ? ". Bands: ± one standard deviation over the seeds" : "")
        + ". " + answer.curves.map(({ trial, label }, at) => LETTERS[at] + ": " + label + (trial === opened ? " (open)" : "")).join("; ") + ".",
      series: answer.curves.map(({ at, mean, sd }, index) => ({ letter: LETTERS[index], label: "", at, mean, sd })),
    });
    charts.append(chart.box);
  }

  // ---- table ----

  async function showRows() {
    const asked = sweep;
    const answer = await callServer(server, "rows", { sweep, start });
    if (asked !== sweep || !answer?.cells) return;
    const focused = table.contains(document.activeElement) ? document.activeElement.value : null;
    table.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "trial"), ...answer.header.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...answer.cells.map((cells, at) => make("tr", { class: answer.trials[at] === opened ? "open" : false },
        make("th", { scope: "row" }, make("button", { type: "button", value: answer.trials[at], "aria-label": "open trial " + (answer.start + at + 1), onclick: () => openTrial(answer.trials[at]) }, String(answer.start + at + 1))),
        ...cells.map((cell) => make("td", {}, cell))))));
    if (focused) [...table.querySelectorAll("button")].find(({ value }) => value === focused)?.focus();
    const last = answer.start + answer.cells.length;
    const move = (by) => { start = Math.max(0, start + by); showRows(); };
    const step = answer.cells.length || 50;
    pages.hidden = answer.total <= answer.cells.length;
    pages.replaceChildren(
      make("button", { type: "button", disabled: answer.start === 0, onclick: () => move(-50) }, "Better"),
      make("span", { class: "muted" }, counted(answer.start + 1) + "–" + counted(last) + " of " + counted(answer.total)),
      make("button", { type: "button", disabled: last >= answer.total, onclick: () => move(step) }, "Worse"));
  }

  async function saveTable(format) {
    const answer = await callServer(server, "table", { sweep, format }, FILE_SECONDS);
    if (answer?.text) download(new Blob([answer.text], { type: "text/plain;charset=utf-8" }), answer.name);
    say(answer?.text ? "" : answer?.error ?? NO_ANSWER);
  }

  // ---- the open trial ----

  /** Open a trial: its first run becomes the current run of the page. */
  async function openTrial(name) {
    opened = name;
    parallel.select(name);
    for (const row of table.querySelectorAll("tbody tr")) row.classList.toggle("open", row.querySelector("button").value === name);
    const trial = await showTrial();
    const first = trial?.runs.find(({ run, status }) => run && status !== "queued");
    if (first) pick(first.run);
    trialPanel.scrollIntoView({ block: "nearest" });
    showCurves();
  }

  async function showTrial() {
    const asked = opened;
    const trial = await callServer(server, "trial", { sweep, trial: opened });
    if (asked !== opened) return null;
    if (!trial?.runs) return void say(trial?.error ?? NO_ANSWER);
    const figure = (value) => (value === null ? "" : " · " + formatNumber(value));
    const runs = trial.runs.map(({ seed, run, status: now, value }) => make("li", {}, run
      ? make("button", { type: "button", onclick: () => pick(run), title: "make it the current run" }, "seed " + seed + ": " + now + figure(value))
      : make("span", { class: "muted" }, "seed " + seed + ": waiting")));
    const stopTrial = make("button", { type: "button", class: "stop-trial", hidden: !trial.stoppable, onclick: () => act("stop_trial", stopTrial, { trial: trial.trial }) }, "Stop this trial");
    trialPanel.replaceChildren(make("h3", {}, trial.settings.map(([key, value]) => key + " = " + value).join(", ")),
      make("p", { class: "muted" }, "Its run is the current run now: all tabs show it. State: " + trial.state + "."), make("ul", { class: "runs" }, ...runs),
      make("div", { class: "tools" }, make("button", { type: "button", onclick: () => openTab("train") }, "Its charts"), make("button", { type: "button", onclick: () => openTab("attention") }, "Look inside"), stopTrial));
    trialPanel.hidden = false;
    return trial;
  }

  return { show, clear, version: () => (latest && latest.sweep === sweep && trials ? latest.version : "") };
}
