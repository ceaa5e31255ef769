// The current run as the server reports it: its state, metrics and attention snapshots. One poll serves the whole page.
//
// The top bar starts the polling; other components listen with `onFeed` and read `feed` and `selection`.

import { emptyHistory, heldRows, mergeHistory, nearestIndex } from "./history.js";
import { inTab } from "./remembered.js";
import { callServer, fetchJson, pollWhileVisible } from "./server.js";

const POLL_MS = { starting: 100, active: 500, waiting: 2000, ended: 4000, failed: 1000 }; // waiting: behind others
const RELOADED = "attention-lab-reloaded-for"; // the server that the page was last reloaded for
const MAX_STARTING_MS = 3000; // time in which a run's first snapshots are polled frequently, so that it visibly starts
const MAX_SNAPSHOTS = 300; // kept in the browser, each with the maps of one view
const ACTIVE = ["queued", "training", "stopping"];

/**
 * The state of the current run; `latest` is the last response, without its metrics and snapshots. `loading`: the page
 * does not know the current run yet. `gone`: why there is no such run any more. `translator`: the name of a shipped run that translates, whatever run is open.
 */
export const feed = { ...nothingKnown(null), loading: true, translator: null };

/** The bench's selection: a training step (null: the latest), attention blocks ("": the default), an input. */
export const selection = { step: null, block: "", input: 0 };

const listeners = new Set();
let server = null;
let refreshNow = () => {};

function nothingKnown(run) {
  return {
    run, latest: null, error: "", gone: "", metrics: emptyHistory(), since: performance.now(),
    steps: [], // training steps of the saved snapshots
    masses: new Map(), // step → attention mass by layer and head
    snapshots: new Map(), // key → snapshot with the maps of one view
    shown: null, // the snapshot that fits the selection best
  };
}

/** Call a function after every change; returns a function that stops this. */
export function onFeed(listener) {
  listeners.add(listener);
  listener();
  return () => listeners.delete(listener);
}

function changed() {
  for (const listener of listeners) listener();
}

/** Record whether the page is still determining the current run. */
export function setLoading(loading) {
  if (loading === feed.loading) return;
  feed.loading = loading;
  changed();
}

/** Name a shipped run that translates, for a link to it. */
export function setTranslator(run) {
  feed.translator = run;
  changed();
}

/** Make a run the current one, or null for none. */
export function follow(run) {
  if (run !== feed.run) {
    Object.assign(feed, nothingKnown(run));
    Object.assign(selection, { step: null, input: 0 });
    changed();
  }
  refreshNow();
}

export const isActive = () => ACTIVE.includes(feed.latest?.status);

// ---- polling ----

/** Start polling with the server functions of a component that is always on the page. */
export function startFeed(element, functions) {
  server = functions;
  refreshNow = pollWhileVisible(element, refresh);
}

async function refresh() {
  const { run } = feed;
  if (run === null) return POLL_MS.ended;
  const view = viewKey();
  const newest = feed.steps.at(-1) ?? -1;
  const update = await callServer(server, "feed", {
    run,
    ...heldRows(feed.metrics),
    since_snapshot: feed.snapshots.has(newest + view) ? newest : -1,
    known_snapshots: feed.steps.length,
    block: selection.block,
    input: selection.input,
  });
  if (run !== feed.run) return 0; // another run was selected meanwhile
  if (reloadsFor(update ?? {})) return POLL_MS.failed;
  document.body.dataset.server = update ? "" : "gone"; // the style sheet grays out what needs it
  if (!update && window.gradio_config) fetchJson("gradio_api/app_id").then((now) => reloadsFor(now ?? {})); // another version may have no such feed
  if (update?.gone) {
    feed.gone = update.gone;
    changed();
    return POLL_MS.ended;
  }
  if (update?.run !== run) {
    feed.error = update?.error ?? "No connection to the server, retrying. Runs are saved there and can be resumed.";
    changed();
    return POLL_MS.failed;
  }
  feed.error = "";
  applyUpdate(update);
  changed();
  if (update.poll_ms) return update.poll_ms; // of a source that is nearer than a server
  if (update.queue_position > 1) return POLL_MS.waiting;
  if (!ACTIVE.includes(update.status)) return POLL_MS.ended;
  return feed.steps.length < 2 && performance.now() - feed.since < MAX_STARTING_MS ? POLL_MS.starting : POLL_MS.active;
}

/**
 * Reload the page if the server was restarted below it: the new one knows neither its run nor its decode; the address
 * and the drafts do. Gradio reloads only if a press met the outage.
 */
function reloadsFor({ app_id: now = null }) {
  const known = window.gradio_config?.app_id ?? null; // none on a site of files
  if (known === null || now === null || now === known || inTab.get(RELOADED) === String(now)) return false;
  if (!inTab.set(RELOADED, now)) return false; // once: a page out of a cache would name the former server again
  window.location.reload();
  return true;
}

function applyUpdate({ points, evaluations, snapshots, ...rest }) {
  feed.latest = rest;
  mergeHistory(feed.metrics, { points, evaluations });
  feed.steps = snapshots.steps;
  const saved = new Set(feed.steps);
  for (const step of feed.masses.keys()) if (!saved.has(step)) feed.masses.delete(step);
  for (const [step, masses] of snapshots.masses) feed.masses.set(step, masses);
  if (snapshots.latest) keep(snapshots.latest);
  show();
}

// ---- snapshots ----

const viewKey = () => " " + selection.block + " " + selection.input;

function keep(snapshot) {
  feed.snapshots.set(snapshot.step + viewKey(), snapshot);
  while (feed.snapshots.size > MAX_SNAPSHOTS) feed.snapshots.delete(feed.snapshots.keys().next().value);
}

/** The step of the selected snapshot: the latest, or the saved one nearest to the selected step. */
export function shownStep() {
  if (selection.step === null) return feed.steps.at(-1) ?? null;
  return feed.steps[nearestIndex(feed.steps, selection.step)] ?? null;
}

/** Show the selected snapshot if it is loaded; the previous one remains until then. */
function show() {
  const step = shownStep();
  if (step === null) feed.shown = null;
  const wanted = feed.snapshots.get(step + viewKey());
  if (wanted) feed.shown = wanted;
  return Boolean(wanted);
}

/** Change the selection, and fetch the snapshot that it needs. */
export async function select(change) {
  Object.assign(selection, change);
  const isHere = show();
  changed();
  const step = shownStep();
  if (isHere || step === null) return;
  const { run } = feed;
  const view = viewKey();
  const answer = await callServer(server, "snapshot", { run, step, block: selection.block, input: selection.input });
  if (run !== feed.run || view !== viewKey() || answer?.step == null) return;
  keep(answer);
  show();
  changed();
}
