// A summary of uploaded pairs: statistics, length histograms, the first pairs, and skipped rows.

import { make, setText, partsOf } from "../../web/dom.js";

export function mount({ element, props, watch }) {
  const part = partsOf(element);

  const child = (name, tag) => part(name).querySelector(tag);

  function makeBar([span, count], most) {
    const width = (100 * count) / most;
    return make("tr", {},
      make("th", { scope: "row" }, span),
      make("td", { class: "bar" }, make("span", { class: "fill", style: "width: " + width.toFixed(1) + "%" })),
      make("td", { class: "count" }, count.toLocaleString("en")));
  }

  function makeLengths({ title, bars }) {
    const most = Math.max(...bars.map((bar) => bar[1]));
    return make("table", { class: "histogram" },
      make("caption", {}, title),
      make("tbody", {}, ...bars.map((bar) => makeBar(bar, most))));
  }

  function showSummary(value) {
    child("facts", "tbody").replaceChildren(...value.facts.map(([name, text]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text))));
    part("lengths").replaceChildren(...value.lengths.map(makeLengths));
    child("pairs", "tbody").replaceChildren(...value.pairs.map((pair) =>
      make("tr", {}, ...pair.map((text) => make("td", {}, make("bdi", {}, text))))));
    part("skipped-rows").hidden = !value.skipped;
    setText(child("skipped-rows", "summary"), "Skipped rows: " + value.skipped.toLocaleString("en") + ", the first of them");
    child("skipped-rows", "ul").replaceChildren(...value.problems.map((problem) => make("li", {}, problem)));
  }

  function show() {
    const value = props.value ?? {};
    part("data").hidden = !value.problem && !value.facts;
    part("summary").hidden = !value.facts;
    part("notice").className = value.problem ? "notice bad" : "notice good";
    const valid = ["✓ The data is valid.", value.choice, "Press Train, or choose other tokens or settings first."];
    setText(part("notice"), value.problem ? "✗ " + value.problem : valid.filter(Boolean).join(" "));
    if (value.facts) showSummary(value);
  }

  show();
  watch("value", () => {
    show();
    if (!props.value?.timed) part("notice").scrollIntoView({ block: "nearest" });
  });
}
