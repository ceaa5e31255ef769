// All heads of an attention block, one row per layer. Pointing at a head previews it, clicking selects it.

const GRID_SIDES = [72, 60, 48, 40]; // pixels of a thumbnail; smaller with more heads per layer
let grid = { key: "", cells: [] };

function makeGrid(view) {
  const group = uniqueName("head");
  const perLayer = view.heads.length / view.layers;
  const side = GRID_SIDES[[4, 8, 12].filter((most) => perLayer > most).length];
  const cells = view.heads.map(({ layer, head }) => {
    const thumbnail = makeThumbnail(side);
    const radio = make("input", {
      type: "radio", name: group, "aria-label": "layer " + layer + ", head " + head, onchange: () => lockHead({ layer, head }),
    });
    const label = make("label", { class: "thumbnail", title: "layer " + layer + ", head " + head }, radio, ...thumbnail.nodes);
    label.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && previewHead({ layer, head }));
    return { layer, head, thumbnail, radio, label };
  });
  const rows = Array.from({ length: view.layers }, (_, at) => make("div", { class: "layer" },
    make("span", { class: "layer-name" }, "layer " + (at + 1)),
    make("div", { class: "layer-heads", style: "--side: " + (side + 16) + "px" },
      ...cells.filter((each) => each.layer === at + 1).map((each) => each.label))));
  part("head-grid").replaceChildren(...rows);
  return cells;
}

/** Draw all heads; rebuild the grid only if there are other heads than before. */
function showGrid(view) {
  const key = view.block + " " + view.layers + " " + view.heads.length;
  if (grid.key !== key) grid = { key, cells: makeGrid(view) };
  const locked = lockedHead(view);
  grid.cells.forEach((cell, index) => {
    cell.thumbnail.show(view.heads[index]);
    cell.radio.checked = cell.layer === locked.layer && cell.head === locked.head;
  });
}

part("head-grid").addEventListener("pointerleave", () => previewHead(null));
