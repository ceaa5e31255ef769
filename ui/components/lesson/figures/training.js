// The heads of a layer through the training, on the first fixed input of the run's replay.

import { onAppearanceChange } from "../../../web/canvas.js";
import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { viewOf } from "../../../web/maps.js";
import { makeThumbnail } from "../../../web/thumbnails.js";
import { recordAt } from "../../attention_viewer/replay.js";

const SIDE = innerWidth < 760 ? 52 : 72; // pixels of a map; on a phone, a layer fits one row

export function trainingFigure({ box, options, lesson, request }) {
  const slider = make("input", { type: "range", min: 0, "aria-label": "training step", oninput: () => draw() });
  const grid = make("div", { class: "layer-row" });
  const words = make("p", { class: "readout", "aria-live": "polite" });
  const link = make("a", {}, "Open this step in Look inside");
  let replay = null;
  let thumbnails = [];
  box.append(make("div", { class: "tools" }, make("label", {}, "training step", slider)), grid, words, make("p", { class: "links" }, link));

  function draw() {
    if (!replay) return;
    const record = recordAt(replay, Number(slider.value), 0);
    const view = viewOf(record, options.block);
    const layer = options.layer || view.layers;
    const heads = view.heads.filter((each) => each.layer === layer);
    if (!thumbnails.length) {
      thumbnails = heads.map(() => makeThumbnail(SIDE));
      grid.replaceChildren(...thumbnails.map(({ nodes }) => make("div", { class: "thumbnail", role: "img" }, ...nodes)));
    }
    thumbnails.forEach((thumbnail, at) => {
      thumbnail.show(heads[at]);
      grid.children[at].setAttribute("aria-label", "head " + heads[at].head + ": " + heads[at].label + " of its attention on the correct token");
    });
    slider.setAttribute("aria-valuetext", "step " + record.step.toLocaleString("en"));
    const text = (tokens) => tokens.filter((token) => token !== "<EOS>").map(visibleToken).join(" ") || "(empty)";
    setText(words, "Step " + record.step.toLocaleString("en") + ": the input " + text(record.source.slice(1)) + " is answered with " + text(record.tokens)
      + (record.tokens.join() === record.expected?.join() ? " ✓" : " ✗") + ". The best of these heads has "
      + Math.max(...heads.map((head) => head.score)).toFixed(2) + " of its attention on the correct token, " + record.scored_on + ".");
    link.href = "?" + new URLSearchParams({ tab: "attention", run: lesson.run, view: "replay", block: options.block, layer, head: 1, fixed_input: 1, step: record.step });
  }

  onAppearanceChange(box, draw);
  return {
    async show() {
      if (replay) return;
      const answer = await request("snapshots", {});
      if (!answer?.snapshots?.length) return;
      replay = { facts: answer, snapshots: answer.snapshots };
      slider.max = answer.snapshots.length - 1;
      slider.value = 0;
      draw();
    },
  };
}
