// A map as a table: colored cells with their numbers, and one row in words.

import { onAppearanceChange } from "../../../web/canvas.js";
import { attentionColor } from "../../../web/colors.js";
import { make, setText } from "../../../web/dom.js";
import { formatPercent, headName, visibleToken } from "../../../web/format.js";
import { blackOrWhite } from "../../../web/heat_table.js";

const FEW = 8; // columns that have room for their numbers on a phone

/** "59 % on 2 (column 4), 38 % on 9 (column 5)": where a row's weights are, the largest first. */
export function weightsInWords(columns, weights) {
  const order = weights.map((weight, at) => [weight, at]).sort(([a], [b]) => b - a).slice(0, 3);
  return order.filter(([weight], rank) => rank === 0 || weight >= 0.05)
    .map(([weight, at]) => formatPercent(weight, 0) + " on " + visibleToken(columns[at]) + " (column " + (at + 1) + ")").join(", ");
}

/**
 * Make the table in a box. `label` names it, `corner` says what rows and columns are. Returns { show(view), row }:
 *   show({ rows, columns, weights, inWords(row), row })   rows and columns are names; `row` is the marked one, or null
 */
export function makeHeatTable(box, { label, corner, onRow = () => {} }) {
  const table = make("table", { class: "heat" });
  const words = make("p", { class: "readout", "aria-live": "polite" });
  let view = null;
  let marked = null;

  function paint() {
    table.querySelectorAll("td").forEach((cell) => {
      const color = attentionColor(Number(cell.dataset.weight));
      cell.style.background = "rgb(" + color + ")";
      cell.style.color = blackOrWhite(color);
    });
  }

  function mark(row) {
    marked = row;
    [...table.tBodies[0].rows].forEach((each, at) => each.classList.toggle("marked", at === row));
    table.querySelectorAll("tbody button").forEach((button, at) => button.setAttribute("aria-pressed", String(at === row)));
    setText(words, row === null ? "Press a row to read it in words." : view.inWords(row));
    onRow(row);
  }

  function show(next) {
    view = next;
    const small = view.columns.length > FEW;
    table.classList.toggle("small", small);
    const head = make("tr", {}, make("th", { scope: "col", class: "corner" }, corner),
      ...view.columns.map((name) => make("th", { scope: "col" }, visibleToken(name))));
    const body = view.weights.map((weights, row) => make("tr", {},
      make("th", { scope: "row" }, make("button", { type: "button", onclick: () => mark(row) }, view.rows[row])),
      ...weights.map((weight) => make("td", { "data-weight": weight, title: weight.toFixed(3) }, weight.toFixed(2).replace("0.", ".")))));
    table.replaceChildren(make("caption", { class: "visually-hidden" }, label), make("thead", {}, head), make("tbody", {}, ...body));
    paint();
    mark(marked !== null && marked < view.rows.length ? marked : view.row ?? null);
  }

  box.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table), words);
  onAppearanceChange(table, paint);
  return { show };
}

/** The marked row of a map in words: "Step 2 produced 2 after 9. It puts 59 % on …". */
export const rowInWords = (start, columns, weights) => start + " Its attention: " + weightsInWords(columns, weights) + ".";

/** A select for the heads of a block, "layer 2, head 1"; `pick(layer, head)` is called with numbers from 1. */
export function makeHeadSelect(options, pick) {
  const select = make("select", { "aria-label": "attention head", onchange: () => pick(...chosen()) });
  const chosen = () => select.value.split(".").map(Number);
  return {
    node: make("label", {}, "head", select),
    chosen,
    /** Show the heads of maps [layer][head]; layer 0 of the options stands for all layers. */
    show(maps) {
      if (select.options.length) return;
      const layers = maps.map((heads, at) => [at + 1, heads.length]).filter(([layer]) => !options.layer || layer === options.layer);
      select.replaceChildren(...layers.flatMap(([layer, count]) => Array.from({ length: count }, (_, head) =>
        make("option", { value: layer + "." + (head + 1) }, headName({ layer, head: head + 1 })))));
      select.value = (options.layer || maps.length) + "." + options.head;
    },
  };
}

/** A checkbox with a label; `change(checked)` is called when it changes. */
export function makeCheckbox(text, checked, change) {
  const box = make("input", { type: "checkbox", onchange: () => change(box.checked) });
  box.checked = checked;
  return { node: make("label", {}, box, text), isChecked: () => box.checked };
}

/** An address of the tab Look inside, for a head or a cell; rows and columns from 1. */
export const lookInside = (lesson, input, view) =>
  "?" + new URLSearchParams({ tab: "attention", run: lesson.run, input, ...view });
