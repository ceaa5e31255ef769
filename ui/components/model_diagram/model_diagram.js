// The model's modules from input to output, with output shapes and parameter counts.
// Event: 'inspect' {block, layer}, to see the heads of an attention block.

import { make, setText, partsOf } from "../../web/dom.js";
import { callServer } from "../../web/server.js";

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);
  let isVisible = false;
  let asked; // the run whose diagram is shown or on its way

  function sizes({ shape, weights, parameters, calls }) {
    const texts = [shape, weights ? "attention weights " + weights : "", calls > 1 ? calls + " calls" : "",
      parameters ? parameters.toLocaleString("en") + " parameters" : ""];
    return make("span", { class: "size" }, texts.filter(Boolean).join(" · "));
  }

  const line = (part) => make("span", { class: "line" }, make("span", { class: "label" }, part.label), sizes(part));

  function makeInner(part) {
    if (!part.block) return make("div", { class: "inner" }, line(part));
    const { block, layer } = part;
    return make("button", { type: "button", class: "inner", title: "show its heads on the Attention tab",
      onclick: () => {
        trigger("inspect", { block, layer });
        element.closest("#tabs")?.scrollIntoView(); // the heads are at the top of their tab
      } }, line(part));
  }

  /** Show the current run's model once it is in view: tracing its shapes takes the server a second. */
  async function load() {
    const run = props.value?.run ?? null;
    if (!isVisible || run === asked) return;
    asked = run;
    const diagram = run === null ? {} : await callServer(server, "diagram", { run });
    if (asked !== run) return;
    if (!diagram) asked = undefined; // the next look asks again
    show(diagram ?? { missing: "The server did not answer. Close this section and open it again." });
  }

  function show({ columns = [], parameters = 0, batch = 0, missing = "", error = "" }) {
    setText(part("about"), columns.length
      ? parameters.toLocaleString("en") + " parameters. Shapes are those of a training batch of " + batch + ": batch × tokens × features; "
        + "attention weights: batch × heads × queries × keys. Press an attention block to see its heads."
      : error || missing || "No run is chosen. The modules of one appear here.");
    const blocks = columns.flatMap(({ parts }) => parts.flatMap(({ inner }) => inner.map(({ block }) => block)));
    const link = blocks.includes("cross") ? "encoder output → keys and values of each cross-attention"
      : blocks.includes("decoder") ? "processed by the same layers, before the output"
        : "encoder output → output projection, all positions at once";
    part("columns").replaceChildren(...columns.map(({ title, parts }, at) => make("div", {}, make("h3", {}, title),
      ...parts.map((each) => make("div", { class: "part" }, line(each), ...each.inner.map(makeInner))),
      at === 0 ? make("p", { class: "memory muted" }, "↳ " + link) : null)));
  }

  new IntersectionObserver((entries) => {
    isVisible = entries.at(-1).isIntersecting;
    load();
  }).observe(element);
  watch("value", load);
}
