// The beam search tree: one column per step, a line from each token to the hypothesis it extends.

import { make, partsOf } from "../../web/dom.js";
import { formatPercent, isolated, tokenNamer } from "../../web/format.js";

export function mount({ element, props, watch }) {
  const part = partsOf(element);
  let name = tokenNamer(false); // of the shown tree's tokens

  const NODE = { width: 64, height: 34, acrossGap: 26, downGap: 8 };
  const SVG = "http://www.w3.org/2000/svg";

  function draw(tag, attributes, ...children) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  /** Position of each node: its step from the left; within a step, the most probable hypothesis on top. */
  function layoutNodes(nodes) {
    const byStep = new Map();
    nodes.forEach((node, index) => byStep.set(node.step, [...(byStep.get(node.step) ?? []), index]));
    const positions = [];
    for (const [step, indices] of byStep) {
      indices.sort((one, other) => nodes[other].total - nodes[one].total);
      indices.forEach((index, row) => {
        positions[index] = { x: (step - 1) * (NODE.width + NODE.acrossGap) + 2, y: row * (NODE.height + NODE.downGap) + 2 };
      });
    }
    return positions;
  }

  function drawLine(from, to, winning) {
    const x1 = from.x + NODE.width, y1 = from.y + NODE.height / 2, x2 = to.x, y2 = to.y + NODE.height / 2;
    const middle = (x1 + x2) / 2;
    return draw("path", { class: winning ? "winning" : "", d: ["M", x1, y1, "C", middle, y1, middle, y2, x2, y2].join(" ") });
  }

  function drawNode(node, { x, y }) {
    const parts = [draw("rect", { x, y, width: NODE.width, height: NODE.height, rx: 5 })];
    if (node.finished) parts.push(draw("rect", { class: "finished", x: x + 3, y: y + 3, width: NODE.width - 6, height: NODE.height - 6, rx: 3 }));
    const middle = x + NODE.width / 2;
    const token = [...name(node.token)];
    parts.push(draw("text", { x: middle, y: y + 16, "font-size": 13 }, token.length > 7 ? token.slice(0, 6).join("") + "…" : token.join("")));
    parts.push(draw("text", { class: "total", x: middle, y: y + 28 }, node.total.toFixed(2)));
    parts.push(draw("title", {}, isolated(name(node.token)) + ": " + formatPercent(node.probability) + " here"));
    return draw("g", { class: node.winning ? "winning" : "" }, ...parts);
  }

  function drawing(nodes) {
    const positions = layoutNodes(nodes);
    const width = Math.max(...positions.map(({ x }) => x)) + NODE.width + 4;
    const height = Math.max(...positions.map(({ y }) => y)) + NODE.height + 4;
    const lines = nodes.map((node, index) => node.parent === null ? null : drawLine(positions[node.parent], positions[index], node.winning));
    return draw("svg", { width, height, role: "img", "aria-label": "beam search of " + nodes.length + " tokens; the table below has the same content" },
      ...lines.filter(Boolean), ...nodes.map((node, index) => drawNode(node, positions[index])));
  }

  function makeRow(nodes, index) {
    const node = nodes[index], tokens = [];
    for (let at = index; at !== null; at = nodes[at].parent) tokens.unshift(name(nodes[at].token));
    const remark = [node.winning ? "best" : "", node.finished ? "finished" : ""].filter(Boolean).join(", ");
    const cell = (text) => make("td", {}, text);
    return make("tr", {}, cell(String(node.step)), cell(tokens.join(" ")), cell(formatPercent(node.probability)),
      cell(node.total.toFixed(3)), cell(remark));
  }

  function show() {
    const nodes = props.value?.nodes ?? [];
    name = tokenNamer(props.value?.subwords);
    part("shown").hidden = nodes.length === 0;
    part("drawing").replaceChildren(...(nodes.length ? [drawing(nodes)] : []));
    element.querySelector("tbody").replaceChildren(...nodes.map((_, index) => makeRow(nodes, index)));
  }

  show();
  watch("value", show);
}
