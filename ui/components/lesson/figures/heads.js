// All heads of a block as small maps. Pressing one, or a whole layer, decodes without it.

import { onAppearanceChange } from "../../../web/canvas.js";
import { make, setText } from "../../../web/dom.js";
import { formatPercent, headName } from "../../../web/format.js";
import { makeThumbnail } from "../../../web/thumbnails.js";
import { answerText } from "./orders.js";

const SIDE = innerWidth < 760 ? 42 : 64; // pixels of a map; on a phone, a layer fits one row

export function headsFigure({ box, options, request }) {
  const grid = make("div", { class: "head-rows" });
  const words = make("p", { class: "readout", "aria-live": "polite" });
  const measured = new Map(); // exact match by the name of what was ablated
  let buttons = [];
  let input = "";
  let chosen = null;
  box.append(grid, words);

  function draw() {
    for (const { name, button, thumbnail, head, small } of buttons) {
      thumbnail?.show(head);
      button.setAttribute("aria-pressed", String(name === chosen));
      const exact = measured.get(name);
      setText(small, exact === undefined ? "" : formatPercent(exact) + " without");
    }
  }

  /** A button for a head { layer, head, weights, label }, or without one for all heads of a layer. */
  function makeButton(name, text, head) {
    const small = make("span", { class: "score" });
    const thumbnail = head ? makeThumbnail(SIDE) : null;
    const button = make("button", { type: "button", class: "thumbnail", "aria-label": text, onclick: () => ablate(name) },
      ...(thumbnail?.nodes ?? [make("span", {}, "all")]), small);
    return { name, button, thumbnail, head, small };
  }

  function makeButtons({ weights, attention_mass: mass, scored }) {
    const layers = weights[options.block].map((heads, at) => ({ layer: at + 1, heads })).filter(({ layer }) => !options.layer || layer === options.layer);
    buttons = [];
    grid.replaceChildren(...layers.map(({ layer, heads }) => {
      const name = options.block + "." + layer;
      const own = heads.map((map, at) => {
        const score = options.block === scored ? mass[layer - 1]?.[at] : null;
        const label = score == null ? "" : score.toFixed(2);
        const text = headName({ layer, head: at + 1 }) + (label ? ", " + label + " of its attention on the correct token" : "") + ": decode without it";
        return makeButton(name + "." + (at + 1), text, { layer, head: at + 1, weights: map, label });
      });
      own.push(makeButton(name, "all heads of layer " + layer + ": decode without them", null));
      buttons.push(...own);
      return make("div", { class: "layer-row" }, make("span", { class: "muted" }, "layer " + layer), ...own.map(({ button }) => button));
    }));
  }

  async function ablate(name) {
    chosen = name;
    draw();
    const answer = await request("ablation", { input, ablate: name });
    if (!answer) return;
    measured.set(name, answer.exact_match_without);
    draw();
    setText(words, "Without " + name + " the answer is " + answerText(answer.without) + ". With it: " + answerText(answer.intact)
      + ". Exact match on " + answer.sequences + " held-out inputs: " + formatPercent(answer.exact_match) + " with it, "
      + formatPercent(answer.exact_match_without) + " without it.");
  }

  onAppearanceChange(box, draw);
  return {
    async show(text) {
      const answer = await request("decode", { input: text });
      if (!answer) return;
      input = text;
      chosen = null;
      makeButtons(answer);
      draw();
      setText(words, "Answer: " + answerText(answer) + ". Press a head, or all heads of a layer, to decode without it."
        + (options.block === answer.scored ? " The number under a head is its attention on the correct source token; uniform attention would have " + answer.uniform_mass.toFixed(2) + "." : ""));
    },
  };
}
