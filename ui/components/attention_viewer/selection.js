// The selected view, and its copy in the page's address, so that a link opens the same view.

import { patchAddress, patchAddressSoon, readAddress } from "../../web/address.js";
import { bestHead } from "../../web/maps.js";

/** A whole number in the address, or null. */
function integerParameter(query, name) {
  const text = query.get(name) ?? "";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}

/** The selected head of a view; the best one if the model does not have it. */
export function lockedHead(selected, view) {
  const wanted = selected.heads[view.block];
  const match = wanted && view.heads.find((each) => each.layer === wanted.layer && each.head === wanted.head);
  return match ?? bestHead(view);
}

/** The address parameters of a view, which may be null. */
function addressParameters(selected, view) {
  const replaying = selected.mode === "replay";
  const head = view && lockedHead(selected, view);
  return {
    view: replaying ? "replay" : null,
    block: view?.block,
    layer: head?.layer,
    head: head?.head,
    row: selected.cell ? selected.cell.row + 1 : selected.row === null ? null : selected.row + 1,
    column: selected.cell ? selected.cell.column + 1 : null,
    part: selected.part,
    by: selected.by,
    fixed_input: replaying ? selected.input + 1 : null,
    step: replaying ? selected.step : null,
  };
}

/** The selection of a viewer. Nothing is written to the address before it was read. */
export function makeSelection() {
  let isRead = false;
  const selected = {
    mode: "decode", // or "replay"
    block: null, // attention block; null: the one that attends to the source
    heads: {}, // { layer, head } locked for each block
    row: null, // the marked decoding step, from 0
    cell: null, // { row, column } with open arithmetic; null: the strongest of a row
    by: null, // "words": the pieces of a word together; null: by piece
    part: null, // name of the open part of the model; null: a cell
    input: 0, // index of the fixed input
    step: null, // training step; null: the latest
  };
  return {
    selected,
    isRead: () => isRead,
    /** Select the view in the address; invalid values are ignored. */
    read() {
      isRead = true;
      const query = readAddress();
      const fromOne = (name) => Math.max(0, (integerParameter(query, name) ?? 0) - 1);
      if (query.get("view") === "replay") selected.mode = "replay";
      selected.block = query.get("block");
      const [layer, head] = ["layer", "head"].map((name) => integerParameter(query, name));
      if (selected.block && layer && head) selected.heads[selected.block] = { layer, head };
      if (query.has("column")) selected.cell = { row: fromOne("row"), column: fromOne("column") };
      else if (query.has("row")) selected.row = fromOne("row");
      selected.part = query.get("part");
      if (query.get("by") === "words") selected.by = "words";
      selected.input = fromOne("fixed_input");
      selected.step = integerParameter(query, "step");
    },
    /** Put the selection into the address, after a moment: browsers limit the changes per second. */
    saveSoon(view) {
      if (isRead) patchAddressSoon(addressParameters(selected, view));
    },
    save(view) {
      if (isRead) patchAddress(addressParameters(selected, view));
    },
  };
}
