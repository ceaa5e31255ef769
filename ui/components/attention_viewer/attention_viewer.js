// The Attention tab: every head of a decode or, step by step, of the training; one of them large with its numbers.

let value = null; // what Python gave
let settled = false; // whether the address has been read
let drawn = null; // the view on show: a kind of attention of what is told, see viewOf
let preview = null; // { layer, head } pointed at

const toldNow = () => (looked.mode === "replay" ? toldAt(place) : value?.decode ?? null);

/** The head that is open while none is pointed at: the one locked or, if there is none like it, the best. */
function lockedHead(view) {
  const wanted = looked.heads[view.block];
  const found = wanted && view.heads.find((each) => each.layer === wanted.layer && each.head === wanted.head);
  return found ?? bestHead(view);
}

function lockHead({ layer, head }) {
  preview = null;
  looked.heads[drawn.block] = { layer, head };
  showView();
}

function previewHead(head) {
  if (!drawn || (head === null && preview === null)) return;
  preview = head;
  showLarge();
  if (looked.mode === "replay") showFigures();
}

/** Look at something else; what is told of changes, so nothing of the old picture is carried over. */
function lookAt(change) {
  Object.assign(looked, change);
  stopPlaying();
  preview = null;
  written = null;
  looked.row = change.row ?? null;
  showView();
  refreshNow();
}

// ---- drawing ----

const tokensText = (tokens) => tokens.map(visibleToken).join(" ");

/** "Attention of 4 8 2 9 → 9 2 8 4, by brisk-otter after 400 steps". */
function headingOf(told) {
  const output = told.tokens.filter((token, step) => step < told.tokens.length - 1 || token !== told.source.at(-1));
  const by = looked.mode === "replay" ? run + " after " + told.step + " of " + latest.steps + " steps of its training" : told.by;
  return "Attention of " + tokensText(told.source.slice(1, -1)) + " → " + tokensText(output) + ", by " + by;
}

/** The view of what is told: a kind of attention that the model has, the one asked for if it can be. */
function viewNow(told) {
  const blocks = told.blocks.map((each) => each.block);
  const block = blocks.includes(looked.block) ? looked.block : blocks[0];
  const view = viewOf(told, block);
  view.row = block !== "encoder" && looked.row !== null && looked.row < view.rows.length ? looked.row : null;
  if (looked.mode === "replay") {
    view.when = "training step " + told.step;
    view.reserve = reserveFor(block);
    looked.heads[block] ??= bestHead(viewOf(toldAt(snapshots.length - 1), block)); // or it would change with the step
  }
  return view;
}

function showView() {
  findPlace();
  const told = toldNow();
  const modes = [["decode", "this decode"], ["replay", "training replay"]];
  showChoice("modes", modes, looked.mode, (mode) => lookAt({ mode }));
  part("blocks").hidden = part("shown").hidden = !told;
  part("empty").hidden = Boolean(told);
  const nothing = looked.mode === "replay" ? whyNoReplay() : "Nothing decoded yet. Type a sequence under Decode.";
  setText(part("empty"), nothing);
  setText(part("heading"), told ? headingOf(told) : "");
  drawn = told && viewNow(told);
  if (drawn) {
    showChoice("blocks", told.blocks.map(({ block, name }) => [block, name]), drawn.block, (block) => lookAt({ block }));
    showGrid(drawn);
    setText(part("uniform"), drawn.uniformMass === null ? "" : "Under each head: its attention on the true token, "
      + drawn.scoredOn + ". " + uniformSentence(drawn.uniformMass));
    showWriting(drawn, told);
    showLarge();
  }
  showReplay();
  keepAddressSoon();
}

// ---- taking a value ----

/** What tells one decode from another. */
const decodeKey = (given) => JSON.stringify([given?.run, given?.decode?.by, given?.decode?.source, given?.decode?.tokens]);

function takeValue() {
  const before = value;
  value = props.value ?? null;
  if (!value?.run) return showView();
  if (!settled) lookWhereAddressSays();
  else if (value.run !== before?.run) looked.heads = {};
  const opened = value.open ?? {};
  if (opened.at && opened.at !== before?.open?.at) {
    const head = opened.head ? { layer: opened.layer, head: opened.head } : null;
    Object.assign(looked, { mode: "decode", block: opened.block, row: opened.row ?? null });
    looked.heads[opened.block] = head;
    written = preview = null;
  } else if (settled && looked.mode === "decode" && decodeKey(value) !== decodeKey(before)) {
    written = preview = looked.row = null;
  }
  settled = true;
  followRun(value.run);
  showView();
  refreshNow();
}

part("link-button").addEventListener("click", copyLink);
onLookChange(() => {
  redrawLarge();
  redrawCharts();
});
const refreshNow = keepAsking(refresh);
takeValue();
watch("value", takeValue);
