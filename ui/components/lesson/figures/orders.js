// The same tokens in two orders, decoded with positional encodings and without.

import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";

/** An answer as text, without EOS, and whether it is correct. */
export function answerText({ produced, correct }) {
  const shown = produced.filter((token) => token !== "<EOS>").map(visibleToken).join(" ") || "(empty)";
  return shown + (correct == null ? "" : correct ? "  ✓ correct" : "  ✗ wrong");
}

/** The same items in a random order, other than before if there is one. */
function shuffled(items) {
  const next = [...items];
  for (let last = next.length - 1; last > 0; last -= 1) {
    const at = Math.floor(Math.random() * (last + 1));
    [next[last], next[at]] = [next[at], next[last]];
  }
  return next.join() === items.join() ? [...next.slice(1), next[0]] : next;
}

export function ordersFigure({ box, request }) {
  const table = make("table", { class: "orders" });
  const words = make("p", { class: "readout", "aria-live": "polite" });
  const again = make("button", { type: "button", onclick: () => ask(shuffled(other).join(" ")) }, "Another order");
  let input = "";
  let other = [];
  box.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "answers to both orders" }, table), words, make("div", { class: "tools" }, again));

  async function ask(order) {
    const answer = await request("orders", { input, other: order });
    if (!answer) return;
    other = answer.with[1].input;
    const cell = (found) => make("td", { class: "answer" }, answerText(found));
    table.replaceChildren(
      make("thead", {}, make("tr", {}, ...["input", "with positions", "without positions"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...answer.with.map((found, at) => make("tr", {}, make("th", { scope: "row" }, found.input.map(visibleToken).join(" ")),
        cell(found), cell(answer.without[at])))));
    const [one, two] = answer.without;
    const isSame = one.produced.join() === two.produced.join();
    const apart = Math.max(...one.probabilities.map((probability, at) => Math.abs(probability - (two.probabilities[at] ?? 0))));
    setText(words, isSame
      ? "Without positions both orders get the same answer, token by token; its probabilities differ by at most " + apart.toFixed(4) + "."
      : "Without positions the two answers differ: the two inputs do not hold the same tokens.");
  }

  return {
    show(text) {
      input = text;
      return ask("");
    },
  };
}
