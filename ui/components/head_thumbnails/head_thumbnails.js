// The heads of one layer as thumbnails. Event: 'pick' {head}. (An event named 'head' would clash with gr.HTML.head.)

import { make, setText, partsOf } from "../../web/dom.js";
import { makeThumbnail, uniformSentence } from "../../web/thumbnails.js";

const MANY = 8; // heads; more are drawn smaller

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  function applyValue() {
    const heads = props.value?.heads ?? [];
    part("thumbnails").classList.toggle("many", heads.length > MANY);
    part("thumbnails").replaceChildren(...heads.map((head) => {
      const thumbnail = makeThumbnail(heads.length > MANY ? 72 : 128);
      thumbnail.show(head);
      const open = () => trigger("pick", { head: head.head });
      return make("button", { type: "button", class: "thumbnail", onclick: open }, ...thumbnail.nodes);
    }));
    setText(part("title"), heads.length ? props.value.title : "");
    setText(part("uniform"), uniformSentence(props.value?.uniform_mass));
  }

  applyValue();
  watch("value", applyValue);
}
