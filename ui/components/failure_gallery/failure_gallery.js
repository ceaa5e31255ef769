// A run's wrong answers in groups; each is a button that opens its attention.
// Event: 'inspect' {run, text, step}: the input as typed, and the first wrong step, counted from 0.

import { make, setText, uniqueName, partsOf } from "../../web/dom.js";
import { downloadCsv, fileName } from "../../web/files.js";
import { formatPercent, visibleToken } from "../../web/format.js";

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  const groupings = part("grouping");
  const radioName = uniqueName("grouping");
  let grouping = "kind";

  /** Tokens with the one at index `wrong` marked, or the end if it is missing. */
  function makeTokens(tokens, wrong, end) {
    const texts = [...tokens.map(visibleToken), ...(wrong >= tokens.length ? [end] : [])];
    return make("span", { class: "tokens" }, ...texts.flatMap((text, at) => [
      at ? " " : "", make("span", { class: at === wrong ? "wrong" : false }, text)]));
  }

  function makeExample(example) {
    const { run } = props.value;
    const end = example.stopped ? "<EOS>" : "…";
    const textClass = { class: example.texts ? "text" : "tokens" };
    return make("li", {}, make("button", {
      type: "button", class: "example",
      onclick: () => trigger("inspect", { run, text: example.typed, step: example.place }),
    },
    make("span", textClass, example.texts?.source ?? example.input.map(visibleToken).join(" ")),
    make("span", {}, "→\u00a0\u00a0", example.texts ? example.texts.output || "(empty)" : makeTokens(example.output, example.place, end)),
    make("span", { class: "muted" }, example.texts ? "reference: " : "expected: ", make("span", textClass, example.texts?.expected ?? example.expected.map(visibleToken).join(" "))),
    make("span", { class: "open" }, "attention ›")));
  }

  function makeGroup(group, at, wrong) {
    const bar = make("span", { class: "proportion", "aria-hidden": "true" });
    bar.style.width = (100 * group.count) / wrong + "%";
    const more = group.count - group.examples.length;
    return make("details", { class: "group", open: at === 0 },
      make("summary", {},
        make("span", { class: "name" }, group.name),
        make("span", { class: "count" }, group.count.toLocaleString("en") + " · " + formatPercent(group.count / wrong)), bar,
        group.meaning ? make("span", { class: "meaning muted" }, group.meaning) : null),
      make("ul", { class: "examples" }, ...group.examples.map(makeExample),
        more > 0 ? make("li", { class: "muted" }, "and " + more.toLocaleString("en") + " more") : null));
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

  const textOf = ({ texts, ...example }, name) => (texts ? texts[name === "input" ? "source" : name] : example[name].join(" "));

  function saveCsv() {
    const rows = props.value.groupings[grouping].flatMap((group) => group.examples.map((example) =>
      [group.name, ...["input", "output", "expected"].map((name) => textOf(example, name)), example.stopped ? "yes" : "no"]));
    downloadCsv([[grouping, "input", "output", "expected", "ended with EOS"], ...rows], fileName(props.value.run + " failures", "csv"));
  }

  function show() {
    const value = props.value;
    const hasResult = Boolean(value?.groupings);
    part("working").hidden = !value?.progress;
    part("result").hidden = !hasResult;
    if (value?.progress) {
      part("bar").value = value.progress.done;
      setText(part("progress-text"), value.progress.run + ": " + Math.round(100 * value.progress.done) + " % decoded");
    }
    if (!hasResult) return;
    setText(part("summary"), value.summary);
    setText(part("advice"), value.advice);
    part("details").hidden = value.wrong === 0;
    showGroupings();
    showGroups();
  }

  part("csv").addEventListener("click", saveCsv);
  show();
  watch("value", show);
}
