// The translation of a text of several sentences: the whole as text, and each sentence with a button that shows its words below.
// Event: 'pick' {text}: the sentence.

import { make, setText, partsOf } from "../../web/dom.js";

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  function pick(button, text) {
    for (const each of element.querySelectorAll(".pick")) each.setAttribute("aria-pressed", String(each === button));
    trigger("pick", { text });
  }

  function makeSentence({ source, output, problem }, at, shown) {
    return make("li", { class: "sentence" },
      make("span", { class: "source" }, source),
      problem ? make("span", { class: "problem" }, "✗ " + problem) : make("span", { class: "output" }, output || "(empty)"),
      problem ? null : make("button", {
        type: "button", class: "pick", "aria-label": "words of sentence " + (at + 1), "aria-pressed": String(at === shown),
        onclick: (event) => pick(event.currentTarget, source),
      }, "words"));
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
    const sentences = value?.sentences ?? [];
    const first = sentences.findIndex(({ problem }) => !problem); // its words are shown
    part("sentences").replaceChildren(...sentences.map((each, at) => makeSentence(each, at, first)));
  }

  part("copy").addEventListener("click", copy);
  show();
  watch("value", show);
}
