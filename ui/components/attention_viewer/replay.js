// The training, step by step: asks the server for what is new of a run's replay, and plays it.

const ENDED = ["finished", "failed", "stopped", "interrupted"];
const PLAYING_MS = [120, 400]; // a snapshot: as fast, as slow
const PLAYED_IN_MS = 10000; // all of them, about
const slider = part("step");

let run = null; // whose training it is
let held = emptyHistory(); // its figures
let snapshots = []; // oldest first
let facts = {}; // what holds for all of them: inputs, blocks, scored, uniform_mass
let latest = null; // the server's last answer about the run: status, step, steps
let place = -1; // of the snapshot on show
let playTimer = 0;

function followRun(name) {
  if (name === run) return;
  run = name;
  held = emptyHistory();
  snapshots = [];
  facts = {};
  latest = null;
  stopPlaying();
}

// ---- asking the server ----

async function refresh() {
  if (looked.mode !== "replay" || run === null) return 300;
  const asked = run;
  const news = await askServer("replay", {
    run,
    since: snapshots.at(-1)?.step ?? -1,
    since_step: lastStep(held.points),
    since_evaluation: lastStep(held.evaluations),
  });
  if (asked !== run) return 0; // the visitor went to another run meanwhile
  setText(part("replay-message"), news?.run === run ? "" : news?.error ?? "connection lost, retrying");
  if (news?.run !== run) return 1000;
  const { status, steps } = latest ?? {};
  if (takeNews(news) || status !== news.status || steps !== news.steps) showView();
  return ENDED.includes(news.status) ? 2000 : 1000;
}

/** Add what is new and drop what is not kept any more; tells whether anything changed. */
function takeNews(news) {
  const before = snapshots.length;
  if (news.restart) held = emptyHistory();
  const added = appendRows(held.points, news.points) + appendRows(held.evaluations, news.evaluations);
  const kept = new Set(news.kept);
  snapshots = snapshots.filter((each) => kept.has(each.step));
  const dropped = before - snapshots.length;
  snapshots.push(...news.snapshots.filter((each) => each.step > (snapshots.at(-1)?.step ?? -1)));
  const { inputs, blocks, scored, scored_on, uniform_mass } = news;
  facts = { inputs, blocks, scored, scored_on, uniform_mass };
  latest = { status: news.status, step: news.step, steps: news.steps };
  return added > 0 || dropped > 0 || snapshots.length !== before;
}

// ---- what is on show ----

/** The place of the step that is looked at: the last, or the nearest there is. */
function findPlace() {
  place = looked.step === null ? snapshots.length - 1 : placeNearest(snapshots.map((each) => each.step), looked.step);
}

/** What is told of one fixed input at one place of the replay; null where there is nothing. */
function toldAt(at) {
  const probe = Math.min(looked.probe, (facts.inputs?.length ?? 0) - 1);
  const input = facts.inputs?.[probe];
  const snapshot = snapshots[at];
  if (!input || !snapshot) return null;
  return { ...facts, ...input, ...snapshot.outputs[probe], attention_mass: snapshot.attention_mass, step: snapshot.step };
}

/** What the largest map of the input on show needs: its tokens, rows and columns. */
function reserveFor(block) {
  const told = snapshots.map((_, at) => toldAt(at));
  const rows = Math.max(...told.map((each) => (block === "encoder" ? each.source : each.tokens).length));
  const columns = Math.max(...told.map((each) => each.maps[block].shape[3]));
  return { tokens: block === "encoder" ? [] : [...new Set(told.flatMap((each) => each.tokens))], rows, columns };
}

/** Why there is no map to show. */
function whyNoReplay() {
  if (!latest) return "Fetching the replay.";
  if (snapshots.length) return "The maps of this model are too large to be kept at every evaluation. Its curves are here.";
  if (!ENDED.includes(latest.status)) return "The replay begins with the first evaluation.";
  return "This run kept no replay: it was trained before there were any, or was stopped too soon. Train it again to have one.";
}

function showReplay() {
  part("replay").hidden = looked.mode !== "replay" || snapshots.length === 0;
  if (part("replay").hidden) return;
  const inputs = facts.inputs.map(({ source }, number) => [number, source.slice(1, -1).map(visibleToken).join(" ")]);
  part("probes").hidden = inputs.length < 2;
  showChoice("probes", inputs, Math.min(looked.probe, inputs.length - 1), (number) => lookAt({ probe: Number(number) }));
  const { step } = snapshots[place];
  const when = "step " + step + " of " + latest.steps;
  slider.max = snapshots.length - 1;
  slider.value = place;
  slider.setAttribute("aria-valuetext", when);
  setText(part("when"), when);
  const follows = looked.step === null ? "Following the training." : "The training goes on; the last step follows it.";
  setText(part("follows"), ENDED.includes(latest.status) ? "" : follows);
  setText(part("play"), playTimer ? "❚❚ Pause" : "▶ Play");
  showFigures();
}

// ---- moving through it ----

/** Show the snapshot at a place; at the last one the view follows the training. */
function goTo(at) {
  looked.step = at >= snapshots.length - 1 ? null : snapshots[Math.max(0, at)].step;
  endWriting();
  showView();
}

function scrubTo(at) {
  stopPlaying();
  if (at >= 0) goTo(at);
}

function stopPlaying() {
  clearTimeout(playTimer);
  playTimer = 0;
}

function playOn() {
  const seen = element.isConnected && element.offsetParent !== null;
  if (!seen || place >= snapshots.length - 1) {
    stopPlaying();
    return showView();
  }
  const [fast, slow] = PLAYING_MS;
  playTimer = setTimeout(playOn, Math.max(fast, Math.min(slow, PLAYED_IN_MS / snapshots.length)));
  goTo(place + 1);
}

function togglePlaying() {
  if (playTimer) {
    stopPlaying();
    return showView();
  }
  if (place >= snapshots.length - 1) goTo(0);
  playTimer = setTimeout(playOn, PLAYING_MS[1]);
  showView();
}

slider.addEventListener("input", () => scrubTo(Number(slider.value)));
part("play").addEventListener("click", togglePlaying);
