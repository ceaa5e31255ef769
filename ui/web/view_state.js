// The selected view, and its copy in the page's address, so that a link opens the same view.

const selected = {
  mode: "decode", // or "replay"
  block: null, // attention block; null: the one that attends to the source
  heads: {}, // { layer, head } locked for each block
  row: null, // the marked decoding step, from 0
  input: 0, // index of the fixed input
  step: null, // training step; null: the latest
};
const ADDRESS_KEYS = ["view", "block", "layer", "head", "row", "fixed_input", "step"];

/** A whole number in the address, or null. */
function integerParameter(query, name) {
  const text = query.get(name) ?? "";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}

/** Select the view in the address; invalid values are ignored. */
function readSelectionFromAddress() {
  const query = new URLSearchParams(window.location.search);
  const fromOne = (name) => Math.max(0, (integerParameter(query, name) ?? 0) - 1);
  if (query.get("view") === "replay") selected.mode = "replay";
  selected.block = query.get("block");
  const [layer, head] = ["layer", "head"].map((name) => integerParameter(query, name));
  if (selected.block && layer && head) selected.heads[selected.block] = { layer, head };
  if (query.has("row")) selected.row = fromOne("row");
  selected.input = fromOne("fixed_input");
  selected.step = integerParameter(query, "step");
}

/** The address parameters of a view, which may be null. */
function addressParameters(view) {
  const replaying = selected.mode === "replay";
  const head = view && lockedHead(view);
  return {
    view: replaying ? "replay" : null,
    block: view?.block,
    layer: head?.layer,
    head: head?.head,
    row: selected.row === null ? null : selected.row + 1,
    fixed_input: replaying ? selected.input + 1 : null,
    step: replaying ? selected.step : null,
  };
}

let addressTimer = 0;

/** Put the view into the address after a moment: browsers limit the changes per second. */
function updateAddressSoon() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(updateAddress, 250);
}

function updateAddress() {
  clearTimeout(addressTimer);
  if (!isAddressRead) return; // the address is still to be read
  const query = new URLSearchParams(window.location.search);
  for (const name of ADDRESS_KEYS) query.delete(name);
  for (const [name, value] of Object.entries(addressParameters(shownView))) if (value != null) query.set(name, value);
  window.history.replaceState(window.history.state, "", "?" + query);
}

/** Copy the address; if the browser forbids it, show it for copying by hand. */
async function copyLink() {
  updateAddress();
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
