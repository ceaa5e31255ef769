// Exact match with each head ablated: one button per head and layer, which ablates or restores it.
// Value: { run, intact, sequences, step, measured, total, seconds_left, note, rows: [{ label, cells: [{ name, label,
// exact_match }] }] }; cells that are not measured yet have exact_match null. Props: interventions { ablated, patterns }, measuring.
// Event: 'toggle' {name}.

import { make, setText, partsOf } from "../../web/dom.js";
import { formatPercent, formatSeconds } from "../../web/format.js";

const NARROW = 5; // cells of a row that have room at their full width
const MANY = 9; // cells that a phone shows side by side; of more, fewer in a line

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  const buttons = new Map(); // by name; created once per model, so that updates keep the keyboard focus
  let builtFor = "";

  // ---- texts ----

  /** "40 %", or "99.6 %". */
  function inPercent(fraction) {
    return formatPercent(fraction, Number.isInteger(Math.round(fraction * 1000) / 10) ? 0 : 1);
  }

  function inPoints(loss) {
    const points = Math.round(Math.abs(loss) * 1000) / 10;
    return points + (points === 1 ? " point" : " points");
  }

  const isSame = (share, other) => Math.abs(share - other) < 0.0005;

  /** Exact match without a head, compared with the intact model. */
  function comparedWith(intact, share) {
    if (isSame(share, intact)) return "the same as with all heads";
    return inPoints(intact - share) + (share < intact ? " less" : " more") + " than with all heads";
  }

  function asSentence(name, share, intact) {
    return "without " + name + ": exact match " + inPercent(share) + ", " + comparedWith(intact, share);
  }

  /** Whether a head is ablated, itself or with its layer. */
  function isAblated(name, ablated) {
    return ablated.some((each) => name === each || name.startsWith(each + "."));
  }

  // ---- the cells ----

  function makeCell({ name, label }) {
    const button = make("button", { type: "button", class: "cell", onclick: () => trigger("toggle", { name }) },
      make("span", { class: "name" }, label), make("span", { class: "figure" }, "–"));
    buttons.set(name, button);
    return make("td", { role: "cell" }, button);
  }

  function makeRow({ label, cells }) {
    return make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, label), ...cells.map(makeCell));
  }

  function fill(button, cell, intact) {
    const { ablated, patterns } = props.interventions ?? { ablated: [], patterns: {} };
    const pressed = isAblated(cell.name, ablated);
    const pattern = patterns[cell.name];
    const known = cell.exact_match != null;
    button.setAttribute("aria-pressed", String(pressed));
    setText(button.firstChild, (pressed ? "✕ " : pattern ? "→ " : "") + cell.label);
    setText(button.lastChild, known ? inPercent(cell.exact_match) : "–");
    button.setAttribute("aria-label", known
      ? asSentence(cell.words, cell.exact_match, intact)
      : "without " + cell.words + ": not measured");
    button.title = pattern ? cell.name + " has the pattern " + pattern : cell.name;
    const loss = known ? Math.min(1, Math.max(0, intact - cell.exact_match)) : 0;
    button.style.background = "color-mix(in srgb, var(--loss) " + Math.round(100 * loss) + "%, var(--background-fill-primary))";
  }

  // ---- summary ----

  /** The heads without one of which exact match is lowest; several if it is the same without each, none if it is not lower. */
  function mostImportant(heads, intact) {
    const lowest = Math.min(...heads.map((cell) => cell.exact_match));
    if (lowest > intact || isSame(lowest, intact)) return [];
    return heads.filter((cell) => isSame(cell.exact_match, lowest));
  }

  /** Say which heads are the most important; `chosen` is the cell of the only ablated head or layer, or null. */
  function importanceText(most, chosen, intact) {
    if (!most.length) return "No single head is needed: without any one of them, exact match is not lower.";
    if (most.includes(chosen)) return most.length === 1 ? "It is the most important head." : "It is one of the " + most.length + " most important heads.";
    const which = most.length === 1 ? "The most important head is " + most[0].words + ": without it" : most.length + " heads are the most important: without any one of them";
    return which + ", exact match is " + inPercent(most[0].exact_match) + ", " + comparedWith(intact, most[0].exact_match) + ".";
  }

  /** Show exact match without the ablated head, and without the most important head once all are measured. */
  function showImportance(value, cells) {
    const measured = cells.filter((cell) => cell.exact_match != null);
    const ablated = props.interventions?.ablated ?? [];
    const chosen = (ablated.length === 1 && measured.find((cell) => cell.name === ablated[0])) || null;
    const sentences = chosen ? [asSentence(chosen.words, chosen.exact_match, value.intact).replace(/^w/, "W") + "."] : [];
    if (value.measured === value.total) {
      sentences.push(importanceText(mostImportant(measured.filter((cell) => cell.label !== "all"), value.intact), chosen, value.intact));
    }
    part("importance").hidden = !sentences.length;
    setText(part("importance"), sentences.join(" "));
  }

  function showStatus(value) {
    const measured = value.intact == null
      ? "Not measured yet. Press a head to ablate it, or measure all heads."
      : "With all heads: exact match " + inPercent(value.intact) + " on " + value.sequences.toLocaleString("en") +
        " held-out inputs, with the weights after step " + value.step.toLocaleString("en") + ".";
    setText(part("baseline"), measured);
    part("progress").hidden = !props.measuring;
    element.querySelector("progress").value = value.total ? value.measured / value.total : 0;
    const left = value.measured && value.seconds_left > 1 ? " · about " + formatSeconds(value.seconds_left) + " left" : "";
    setText(part("count"), value.measured + " of " + value.total + " measured" + left);
    part("note").hidden = !value.note;
    setText(part("note"), value.note);
  }

  function show() {
    const value = props.value?.rows ? props.value : null;
    part("empty").hidden = value !== null;
    part("shown").hidden = value === null;
    if (!value) return;
    const cells = value.rows.flatMap((row) => row.cells.map((cell) => // a screen reader would spell cross.1.2
      ({ ...cell, words: row.label + (cell.label === "all" ? ", all heads" : ", head " + cell.label) })));
    const names = cells.map((cell) => cell.name).join(" ");
    if (names !== builtFor) {
      buttons.clear();
      element.querySelector("tbody").replaceChildren(...value.rows.map(makeRow));
      const table = element.querySelector("table");
      const most = Math.max(...value.rows.map((row) => row.cells.length));
      table.classList.toggle("wide", most > NARROW);
      table.classList.toggle("many", most > MANY);
      table.style.setProperty("--cells", String(most));
      builtFor = names;
    }
    for (const cell of cells) fill(buttons.get(cell.name), cell, value.intact);
    showStatus(value);
    showImportance(value, cells);
  }

  element.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter") event.preventDefault(); // a key that is held presses a head once
  });
  show();
  watch(["value", "interventions", "measuring"], show);
}
