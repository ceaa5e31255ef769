// One input answered in several ways: a row each, with the first place marked that differs from the first row.

/** The first index at which two answers differ, one that has ended included; -1 if they are the same. */
function firstDifference(one, other) {
  for (let at = 0; at < Math.max(one.length, other.length); at += 1) if (one[at] !== other[at]) return at;
  return -1;
}

function makeRow(row, first) {
  const differs = firstDifference(row.output, first.output);
  const tokens = [...row.output.map(visibleToken), row.stopped ? "<EOS>" : "…"];
  const tiles = tokens.map((token, at) => make("span", { class: at === differs ? "tile differs" : "tile" },
    token, at === differs ? make("span", { class: "unseen" }, " (first difference)") : null));
  const said = row.correct ? "✓ correct" : "✗ wrong";
  const verdict = make("span", { class: row.correct ? "good" : "bad" }, row.correct == null ? "" : said);
  const log = row.log_prob == null ? null : make("span", { class: "quiet" }, " · log P " + row.log_prob.toFixed(3));
  return make("div", { class: "row" },
    make("span", { class: "label" }, row.label),
    make("div", { class: "tiles" }, ...tiles),
    make("span", { class: "figures" }, verdict, log));
}

/** Say something in a place, which is there only while there is something to say. */
function say(place, text) {
  place.hidden = !text;
  setText(place, text ?? "");
}

function show() {
  const value = props.value?.rows?.length ? props.value : null;
  part("shown").hidden = value === null;
  if (!value) return;
  say(part("heading"), value.heading);
  say(part("note"), value.note);
  say(part("button"), value.button);
  part("rows").replaceChildren(...value.rows.map((row) => makeRow(row, value.rows[0])));
}

part("button").addEventListener("click", () => trigger("press", {}));
show();
watch("value", show);
