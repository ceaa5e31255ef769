// All heads of an attention block, one row per layer. Pointing at a head previews it, clicking selects it.

import { make, uniqueName } from "../../web/dom.js";
import { headName } from "../../web/format.js";
import { makeThumbnail } from "../../web/thumbnails.js";

const SIDES = [52, 48, 44, 40]; // pixels of a thumbnail; smaller with more heads per layer
const DENSE = { heads: 32, side: 28, width: 50 }; // with more heads, thumbnails have only numbers
const COMPACT = { layers: 3, side: 38, width: 106 }; // from this number of layers on, names are beside thumbnails

/**
 * Make the grid in a box: lock({ layer, head }) is called for a selected head, preview({ layer, head }) and preview(null)
 * for a head under the pointer. Returns { show(view, locked) }.
 */
export function makeHeadsGrid(box, { lock, preview }) {
  let key = ""; // of the heads in the grid
  let cells = [];
  let seen = ""; // the head that was scrolled to
  let pointed = null; // the head under the pointer

  function point(each) {
    if (pointed?.layer === each?.layer && pointed?.head === each?.head) return;
    pointed = each;
    preview(each);
  }

  /** Scroll the box, not the page, to a head that is selected, if many layers hide it. */
  function reveal({ layer, head, label }) {
    const wanted = key + " " + layer + " " + head;
    if (seen === wanted || !label.offsetHeight) return;
    seen = wanted;
    const [frame, row] = [box, label.closest(".layer")].map((each) => each.getBoundingClientRect());
    if (row.top < frame.top || row.bottom > frame.bottom) box.scrollTop += row.top - frame.top;
  }

  function makeCell({ layer, head }, group, side) {
    const thumbnail = makeThumbnail(side);
    const name = headName({ layer, head });
    const radio = make("input", { type: "radio", name: group, "aria-label": name, onchange: () => lock({ layer, head }) });
    const label = make("label", { class: "thumbnail", title: name }, radio, ...thumbnail.nodes);
    // a move, because a grid that opens under a resting pointer is entered too
    label.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point({ layer, head }));
    return { layer, head, thumbnail, radio, label };
  }

  function makeCells(view) {
    const group = uniqueName("head");
    const perLayer = view.heads.length / view.layers;
    const dense = view.heads.length > DENSE.heads;
    const compact = !dense && view.layers >= COMPACT.layers;
    const side = dense ? DENSE.side : compact ? COMPACT.side : SIDES[[4, 8, 12].filter((most) => perLayer > most).length];
    const width = dense ? DENSE.width : compact ? COMPACT.width : side + 16;
    box.classList.toggle("compact", compact);
    box.classList.toggle("dense", dense);
    cells = view.heads.map((each) => makeCell(each, group, side));
    box.replaceChildren(...Array.from({ length: view.layers }, (_, at) => make("div", { class: "layer" },
      make("span", { class: "layer-name" }, "layer " + (at + 1)),
      make("div", { class: "layer-heads", style: "--side: " + width + "px" },
        ...cells.filter((each) => each.layer === at + 1).map((each) => each.label)))));
  }

  box.addEventListener("pointerleave", () => point(null));

  return {
    /** Draw all heads; rebuild the grid only if there are other heads than before. */
    show(view, locked) {
      const wanted = view.block + " " + view.layers + " " + view.heads.length;
      if (key !== wanted) makeCells(view);
      key = wanted;
      cells.forEach((cell, index) => {
        const head = view.heads[index];
        cell.thumbnail.show(head);
        if (box.classList.contains("dense")) cell.thumbnail.shorten(head, cell.label);
        cell.radio.checked = cell.layer === locked.layer && cell.head === locked.head;
        if (cell.radio.checked) reveal(cell);
      });
    },
  };
}
