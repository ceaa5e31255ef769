// The translation of a text of several sentences: the whole as text, and each sentence with a button to look inside.
// Event: 'inspect' {text}: the sentence.

import { make, setText, partsOf } from "../../web/dom.js";

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  function makeSentence({ source, output, problem }, at) {
    return make("li", { class: "sentence" },
      make("span", { class: "source" }, source),
      problem ? make("span", { class: "problem" }, "✗ " + problem) : make("span", { class: "output" }, output || "(empty)"),
      problem ? null : make("button", {
        type: "button", class: "inspect", "aria-label": "attention of sentence " + (at + 1), onclick: () => trigger("inspect", { text: source }),
      }, "attention"));
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(props.value.text);
      setText(part("copied"), "copied");
    } catch { // no permission, or the page is served without encryption
      getSelection().selectAllChildren(part("text"));
      setText(part("copied"), "selected: press Ctrl+C");
    }
  }

  function show() {
    const value = props.value?.sentences?.length ? props.value : null;
    part("shown").hidden = value === null;
    setText(part("copied"), "");
    setText(part("heading"), value ? "Translation of " + value.sentences.length + " sentences" : "");
    setText(part("text"), value?.text ?? "");
    part("sentences").replaceChildren(...(value?.sentences ?? []).map(makeSentence));
  }

  part("copy").addEventListener("click", copy);
  show();
  watch("value", show);
}
