// What was found in pairs that somebody brought: figures, lengths as bars, the first pairs, and rows left out.

const within = (name, tag) => part(name).querySelector(tag);

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

function showFound(value) {
  within("facts", "tbody").replaceChildren(...value.facts.map(([name, said]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, said))));
  part("lengths").replaceChildren(...value.lengths.map(makeLengths));
  within("pairs", "tbody").replaceChildren(...value.pairs.map((pair) =>
    make("tr", {}, ...pair.map((text) => make("td", {}, make("bdi", {}, text))))));
  part("rows-left-out").hidden = !value.left_out;
  setText(within("rows-left-out", "summary"), "rows left out: " + value.left_out.toLocaleString("en") + "; the first of them");
  within("rows-left-out", "ul").replaceChildren(...value.problems.map((problem) => make("li", {}, problem)));
}

function show() {
  const value = props.value ?? {};
  part("data").hidden = !value.problem && !value.facts;
  part("found").hidden = !value.facts;
  part("notice").className = value.problem ? "notice bad" : "notice good";
  setText(part("notice"), value.problem ? "✗ " + value.problem : "✓ The data is ready: press Train below, or change the settings first.");
  if (value.facts) showFound(value);
}

show();
watch("value", show);
