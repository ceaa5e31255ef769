// What the visitor looks at, and its copy in the page's address, so that a link opens the same view.

const looked = {
  mode: "decode", // or "replay": the training
  block: null, // kind of attention; null: the one that looks at the input
  heads: {}, // { layer, head } locked for each kind of attention
  row: null, // the step of writing that is marked, from 0
  probe: 0, // number of the fixed input, from 0
  step: null, // training step; null: the last there is
};
const ADDRESS_NAMES = ["view", "block", "layer", "head", "row", "probe", "step"];

/** A whole number that the address gives, or null. */
function numberIn(query, name) {
  const text = query.get(name) ?? "";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}

/** Look at what the address says; what makes no sense there is as if it were not there. */
function lookWhereAddressSays() {
  const query = new URLSearchParams(window.location.search);
  const fromOne = (name) => Math.max(0, (numberIn(query, name) ?? 0) - 1);
  if (query.get("view") === "replay") looked.mode = "replay";
  looked.block = query.get("block");
  const [layer, head] = ["layer", "head"].map((name) => numberIn(query, name));
  if (looked.block && layer && head) looked.heads[looked.block] = { layer, head };
  if (query.has("row")) looked.row = fromOne("row");
  looked.probe = fromOne("probe");
  looked.step = numberIn(query, "step");
}

/** The names and values that tell of the view on show; `view` is what is drawn, or null. */
function addressOfView(view) {
  const replaying = looked.mode === "replay";
  const head = view && lockedHead(view);
  return {
    view: replaying ? "replay" : null,
    block: view?.block,
    layer: head?.layer,
    head: head?.head,
    row: looked.row === null ? null : looked.row + 1,
    probe: replaying ? looked.probe + 1 : null,
    step: replaying ? looked.step : null,
  };
}

let addressTimer = 0;

/** Put the view into the address soon: a browser takes only so many changes a second. */
function keepAddressSoon() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(keepAddress, 250);
}

function keepAddress() {
  clearTimeout(addressTimer);
  if (!settled) return; // nothing was shown yet, so the address still says what to show
  const query = new URLSearchParams(window.location.search);
  for (const name of ADDRESS_NAMES) query.delete(name);
  for (const [name, value] of Object.entries(addressOfView(drawn))) if (value != null) query.set(name, value);
  window.history.replaceState(window.history.state, "", "?" + query);
}

/** Copy the address; where the browser does not let us, show it, to be copied by hand. */
async function copyLink() {
  keepAddress();
  const link = part("link");
  link.value = window.location.href;
  try {
    await navigator.clipboard.writeText(link.value);
    setText(part("copied"), "Link copied");
    setTimeout(() => setText(part("copied"), ""), 3000);
  } catch {
    link.hidden = false;
    link.focus();
    link.select();
    setText(part("copied"), "Copy this link:");
  }
}
