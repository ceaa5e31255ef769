// The model's parts from top to bottom, with the shape of what comes out and the parameters of each.
// Event: 'look' {block, layer} when an attention is pressed.

function sizes({ shape, weights, parameters, calls }) {
  const texts = [shape, weights ? "weights " + weights : "", calls > 1 ? calls + " times" : "",
    parameters ? parameters.toLocaleString("en") + " parameters" : ""];
  return make("span", { class: "size" }, texts.filter(Boolean).join(" · "));
}

const line = (part) => make("span", { class: "line" }, make("span", { class: "label" }, part.label), sizes(part));

function makeInner(part) {
  if (!part.block) return make("div", { class: "inner" }, line(part));
  const { block, layer } = part;
  return make("button", { type: "button", class: "inner", title: "see its heads on the Attention tab",
    onclick: () => {
      trigger("look", { block, layer });
      element.closest("#tabs")?.scrollIntoView(); // the diagram is long; the heads are at the top of their tab
    } }, line(part));
}

function show() {
  const { columns = [], parameters = 0, batch = 0 } = props.value ?? {};
  setText(part("about"), columns.length
    ? parameters.toLocaleString("en") + " parameters. Sizes are those of a batch of " + batch + " in training: batch × tokens × width; "
      + "of weights, batch × heads × tokens that look × tokens looked at. Press an attention to see its heads."
    : "No run yet: train one first.");
  const isLookedAt = columns.some(({ parts }) => parts.some(({ inner }) => inner.some(({ block }) => block === "cross")));
  part("columns").replaceChildren(...columns.map(({ title, parts }, at) => make("div", {}, make("h3", {}, title),
    ...parts.map((each) => make("div", { class: "part" }, line(each), ...each.inner.map(makeInner))),
    at === 0 ? make("p", { class: "memory quiet" }, "↳ " + (isLookedAt ? "looked at by every cross-attention" : "goes through the same layers, before the answer")) : null)));
}

show();
watch("value", show);
