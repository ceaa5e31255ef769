// The heads of one layer as thumbnails. Event: 'pick' {head}. (An event named 'head' would clash with gr.HTML.head.)

import { onAppearanceChange } from "../../web/canvas.js";
import { make, setText, partsOf } from "../../web/dom.js";
import { makeThumbnail, uniformSentence } from "../../web/thumbnails.js";

const MANY = 8; // heads; more are drawn smaller

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);
  let drawn = []; // [thumbnail, head]

  function draw() {
    for (const [thumbnail, head] of drawn) thumbnail.show(head);
  }

  function applyValue() {
    const heads = props.value?.heads ?? [];
    part("thumbnails").classList.toggle("many", heads.length > MANY);
    drawn = heads.map((head) => [makeThumbnail(heads.length > MANY ? 72 : 128), head]);
    draw();
    part("thumbnails").replaceChildren(...drawn.map(([thumbnail, head]) => {
      const open = () => trigger("pick", { head: head.head });
      return make("button", { type: "button", class: "thumbnail", onclick: open }, ...thumbnail.nodes);
    }));
    setText(part("title"), heads.length ? props.value.title : "");
    setText(part("uniform"), uniformSentence(props.value?.uniform_mass));
  }

  applyValue();
  onAppearanceChange(element, draw); // the maps have the colors of the theme
  watch("value", applyValue);
}
