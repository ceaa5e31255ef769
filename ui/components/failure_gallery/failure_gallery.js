// What a run got wrong: groups to unfold, and each failure a button that opens its own attention.
// Event: 'look' {run, text, step}: the input as one would type it, and the step, from 0, that went wrong.

const groupings = part("grouping");
const radioName = uniqueName("grouping");
let grouping = "kind";

/** Tokens with the one at `wrong` marked; where it is missing, a gap is. */
function makeTokens(tokens, wrong, end) {
  const texts = [...tokens.map(visibleToken), ...(wrong >= tokens.length ? [end] : [])];
  return make("span", { class: "tokens" }, ...texts.flatMap((text, at) => [
    at ? " " : "", make("span", { class: at === wrong ? "wrong" : false }, text)]));
}

function makeExample(example) {
  const { run } = props.value;
  const end = example.stopped ? "<EOS>" : "…";
  return make("li", {}, make("button", {
    type: "button", class: "example",
    onclick: () => trigger("look", { run, text: example.typed, step: example.place }),
  },
  make("span", { class: "tokens" }, example.input.map(visibleToken).join(" ")),
  make("span", {}, "→\u00a0\u00a0", makeTokens(example.output, example.place, end)),
  make("span", { class: "quiet" }, "right: ", make("span", { class: "tokens" }, example.expected.map(visibleToken).join(" "))),
  make("span", { class: "open" }, "attention ›")));
}

function makeGroup(group, at, wrong) {
  const bar = make("span", { class: "share", "aria-hidden": "true" });
  bar.style.width = (100 * group.count) / wrong + "%";
  const more = group.count - group.examples.length;
  return make("details", { class: "group", open: at === 0 },
    make("summary", {},
      make("span", { class: "name" }, group.name),
      make("span", { class: "count" }, group.count.toLocaleString("en") + " · " + formatPercent(group.count / wrong)), bar,
      group.meaning ? make("span", { class: "meaning quiet" }, group.meaning) : null),
    make("ul", { class: "examples" }, ...group.examples.map(makeExample),
      more > 0 ? make("li", { class: "quiet" }, "and " + more.toLocaleString("en") + " more") : null));
}

function showGroups() {
  const { groupings: all, wrong } = props.value;
  part("groups").replaceChildren(...all[grouping].map((group, at) => makeGroup(group, at, wrong)));
}

function showGroupings() {
  groupings.querySelectorAll("label").forEach((label) => label.remove());
  for (const name of Object.keys(props.value.groupings)) {
    const radio = make("input", { type: "radio", name: radioName, onchange: () => { grouping = name; showGroups(); } });
    radio.checked = name === grouping;
    groupings.append(make("label", {}, radio, "by " + name));
  }
}

function saveCsv() {
  const rows = props.value.groupings[grouping].flatMap((group) => group.examples.map((example) =>
    [group.name, example.input.join(" "), example.output.join(" "), example.expected.join(" "), example.stopped ? "yes" : "no"]));
  downloadCsv([[grouping, "input", "output", "right answer", "stopped by itself"], ...rows], fileName(props.value.run + " failures", "csv"));
}

function show() {
  const value = props.value;
  const found = Boolean(value?.groupings);
  part("working").hidden = !value?.progress;
  part("found").hidden = !found;
  if (value?.progress) {
    part("bar").value = value.progress.done;
    setText(part("doing"), value.progress.run + " answers: " + Math.round(100 * value.progress.done) + " % done");
  }
  if (!found) return;
  setText(part("summary"), value.summary);
  setText(part("advice"), value.advice);
  part("some").hidden = value.wrong === 0;
  showGroupings();
  showGroups();
}

part("csv").addEventListener("click", saveCsv);
show();
watch("value", show);
