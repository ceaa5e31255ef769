// What the axes of a sweep do: how much each matters, and the goal for each pair of values of two axes.

import { attentionColor, inkOn } from "../../web/colors.js";
import { make, setText } from "../../web/dom.js";
import { counted, formatNumber, formatPercent } from "../../web/format.js";
import { callServer } from "../../web/server.js";

/** Make the list of the axes' importance. Returns { box, setData }. */
export function makeImportance() {
  const list = make("ul", { class: "importance" });
  const box = make("figure", {}, make("h3", {}, "Importance of the axes"), list,
    make("p", { class: "muted" }, "How much of the variance between trials a single axis explains: η² of the Kruskal-Wallis test on ranks. Joint effects of two axes and pruned trials are not included."));
  return {
    box,
    setData({ axes, importance }) {
      const order = axes.map((axis, at) => [axis.key, importance[at]]).sort((one, other) => (other[1] ?? -1) - (one[1] ?? -1));
      list.replaceChildren(...order.map(([key, share]) => make("li", {}, make("span", { class: "key" }, key),
        make("span", { class: "bar", "aria-hidden": "true" }, make("span", { style: "width: " + 100 * (share ?? 0) + "%" })),
        make("span", { class: "share" }, share === null ? "too few trials" : formatPercent(share, 0)))));
    },
  };
}

/** Make the heat map of two axes that the reader chooses. Returns { box, setData }. */
export function makeHeatMap({ server }) {
  const [down, across] = ["rows", "columns"].map((name) => make("select", { "aria-label": "axis of the " + name, onchange: () => load() }));
  const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "heat map" });
  const caption = make("p", { class: "muted" });
  const box = make("figure", {}, make("h3", {}, "Two axes"),
    make("div", { class: "tools" }, make("label", {}, "rows ", down), make("label", {}, "columns ", across)), place, caption);
  let state = null;
  let round = 0;

  async function load() {
    const mine = (round += 1);
    const answer = await callServer(server, "heat", { sweep: state.sweep, row: down.value, column: across.value });
    if (mine !== round || !answer) return;
    setText(caption, answer.error ?? "Mean " + state.metric.replaceAll("_", " ") + " of the trials with both values; the best are the most prominent. Many values are grouped. Empty: no trial.");
    place.replaceChildren(answer.error ? "" : draw(answer));
  }

  function draw({ rows, columns, means, trials }) {
    const known = means.flat().filter((mean) => mean !== null);
    const order = [...known].sort((one, other) => (state.minimize ? other - one : one - other)); // the worst first
    const weight = (mean) => (order.length > 1 ? order.lastIndexOf(mean) / (order.length - 1) : 1);
    const cell = (mean, row, column) => (mean === null ? make("td", {}) : make("td", {
      style: "background: rgb(" + attentionColor(weight(mean)) + "); color: " + inkOn(weight(mean)),
      title: counted(trials[row][column], "trial"),
    }, formatNumber(mean)));
    return make("table", { class: "heat" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, down.value + " ↓ " + across.value + " →"), ...columns.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map((name, row) => make("tr", {}, make("th", { scope: "row" }, name), ...columns.map((_, column) => cell(means[row][column], row, column))))));
  }

  return {
    box,
    /** Show the two axes that matter most, until the reader chooses others; redrawn when the theme changes. */
    setData({ axes, importance }, progress) {
      const isOther = state?.sweep !== progress.sweep;
      state = progress;
      box.hidden = axes.length < 2;
      if (box.hidden) return;
      const keys = axes.map(({ key }) => key);
      const chosen = isOther || !keys.includes(down.value)
        ? keys.map((key, at) => [key, importance[at] ?? 0]).sort((one, other) => other[1] - one[1]).map(([key]) => key)
        : [down.value, across.value];
      for (const [select, value] of [[down, chosen[0]], [across, chosen[1]]]) {
        if (select.options.length !== keys.length || isOther) select.replaceChildren(...keys.map((key) => make("option", { value: key }, key)));
        select.value = value;
      }
      load();
    },
    redraw: () => state && !box.hidden && load(),
  };
}
