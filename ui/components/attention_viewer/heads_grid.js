// All heads of a kind of attention, a row a layer. Pointing at one shows it large for the moment, clicking locks it.

const GRID_SIDES = [72, 60, 48, 40]; // pixels of a thumbnail: the more heads a layer has, the smaller
let grid = { told: "", cells: [] };

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

/** Draw all heads; made anew only where there are others than before. */
function showGrid(view) {
  const told = view.block + " " + view.layers + " " + view.heads.length;
  if (grid.told !== told) grid = { told, cells: makeGrid(view) };
  const locked = lockedHead(view);
  grid.cells.forEach((cell, place) => {
    cell.thumbnail.show(view.heads[place]);
    cell.radio.checked = cell.layer === locked.layer && cell.head === locked.head;
  });
}

part("head-grid").addEventListener("pointerleave", () => previewHead(null));
