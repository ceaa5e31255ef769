// All heads of the current decode or of a training replay; the selected one large, with its weights.

let value = null; // the value from Python
let isAddressRead = false;
let shownView = null; // the displayed attention block, see viewOf
let preview = null; // { layer, head } under the pointer

const currentRecord = () => (selected.mode === "replay" ? recordAt(shown) : value?.decode ?? null);

/** The selected head; the best one if the model does not have it. */
function lockedHead(view) {
  const wanted = selected.heads[view.block];
  const match = wanted && view.heads.find((each) => each.layer === wanted.layer && each.head === wanted.head);
  return match ?? bestHead(view);
}

function lockHead({ layer, head }) {
  preview = null;
  selected.heads[shownView.block] = { layer, head };
  showView();
}

function previewHead(head) {
  if (!shownView || (head === null && preview === null)) return;
  preview = head;
  showLarge();
  if (selected.mode === "replay") showFigures();
}

/** Change the selection; previews and marked rows of the old one are dropped. */
function select(change) {
  Object.assign(selected, change);
  stopReplay();
  preview = null;
  revealedSteps = null;
  selected.row = change.row ?? null;
  showView();
  refreshNow();
}

// ---- drawing ----

const tokensText = (tokens) => tokens.map(visibleToken).join(" ");

/** "4 8 2 9 → 9 2 8 4, decoded by brisk-otter after 400 steps". */
function headingOf(record) {
  const output = record.tokens.filter((token, step) => step < record.tokens.length - 1 || token !== record.source.at(-1));
  const model = selected.mode === "replay" ? run + " after " + record.step + " of " + latest.steps + " training steps" : record.model;
  return tokensText(record.source.slice(1, -1)) + " → " + tokensText(output) + ", decoded by " + model;
}

/** The view of a record: the selected attention block, or the first if the model does not have it. */
function viewNow(record) {
  const blocks = record.blocks.map((each) => each.block);
  const block = blocks.includes(selected.block) ? selected.block : blocks[0];
  const view = viewOf(record, block);
  view.row = block !== "encoder" && selected.row !== null && selected.row < view.rows.length ? selected.row : null;
  if (selected.mode === "replay") {
    view.when = "training step " + record.step;
    view.reserve = reserveFor(block);
    selected.heads[block] ??= bestHead(viewOf(recordAt(snapshots.length - 1), block)); // or the best head would change from step to step
  }
  return view;
}

function showView() {
  findSnapshot();
  const record = currentRecord();
  const modes = [["decode", "current decode"], ["replay", "training replay"]];
  showChoice("modes", modes, selected.mode, (mode) => select({ mode }));
  part("blocks").hidden = part("shown").hidden = !record;
  part("empty").hidden = Boolean(record);
  const emptyText = selected.mode === "replay" ? replayEmptyText() : "Nothing decoded yet. Enter an input on the Decode tab.";
  setText(part("empty"), emptyText);
  setText(part("heading"), record ? headingOf(record) : "");
  shownView = record && viewNow(record);
  if (shownView) {
    showChoice("blocks", record.blocks.map(({ block, name }) => [block, name]), shownView.block, (block) => select({ block }));
    showGrid(shownView);
    setText(part("uniform"), shownView.uniformMass === null ? "" : "Under each head: attention on the correct source token, "
      + shownView.scoredOn + ". " + uniformSentence(shownView.uniformMass));
    showPlayback(shownView, record);
    showLarge();
  }
  showReplay();
  updateAddressSoon();
}

// ---- values ----

/** A key that identifies a decode. */
const decodeKey = (given) => JSON.stringify([given?.run, given?.decode?.model, given?.decode?.source, given?.decode?.tokens]);

function applyValue() {
  const before = value;
  value = props.value ?? null;
  if (!value?.run) return showView();
  if (!isAddressRead) readSelectionFromAddress();
  else if (value.run !== before?.run) selected.heads = {};
  const selection = value.selection ?? {};
  if (selection.at && selection.at !== before?.selection?.at) {
    const head = selection.head ? { layer: selection.layer, head: selection.head } : null;
    Object.assign(selected, { mode: "decode", block: selection.block, row: selection.row ?? null });
    selected.heads[selection.block] = head;
    revealedSteps = preview = null;
  } else if (isAddressRead && selected.mode === "decode" && decodeKey(value) !== decodeKey(before)) {
    revealedSteps = preview = selected.row = null;
  }
  isAddressRead = true;
  followRun(value.run);
  showView();
  refreshNow();
}

part("link-button").addEventListener("click", copyLink);
onAppearanceChange(() => {
  redrawLarge();
  redrawCharts();
});
const refreshNow = pollWhileVisible(refresh);
applyValue();
watch("value", applyValue);
