// The list of symptoms: questions that fold open, found by their words.

import { readAddress, patchAddress } from "../../web/address.js";
import { make } from "../../web/dom.js";
import { paragraphs } from "./attention_lesson.js";

const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_.]+/u).filter(Boolean);

const makeTable = ({ header, rows }) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" },
  make("table", { class: "polarity" },
    make("thead", {}, make("tr", {}, ...header.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, at) =>
      make(at ? "td" : "th", at ? {} : { scope: "row" }, at === row.length - 1 ? make("code", {}, text) : text)))))));

function makeSymptom({ id, question, text, measure, code, table, links, sources }) {
  const outside = { target: "_blank", rel: "noopener noreferrer" };
  return make("details", { class: "fold", id: "symptom-" + id, ontoggle: (event) => event.target.open && patchAddress({ symptom: id }) },
    make("summary", {}, question),
    make("div", { class: "answer" },
      ...paragraphs(text),
      table ? makeTable(table) : null,
      make("h4", {}, "What to measure"), ...paragraphs(measure),
      code ? make("pre", {}, make("code", {}, code)) : null,
      make("p", { class: "links" }, ...links.map((link) => make("a", { href: link.href }, link.text))),
      sources.length ? make("p", { class: "muted" }, "Asked in ",
        ...sources.flatMap(([name, href], at) => [at ? ", " : "", make("a", { href, ...outside }, name)])) : null));
}

/** Fill an article with the list; the question of the address is open. */
export function showSymptoms(article, { symptoms }) {
  const items = symptoms.map((each) => ({ ...each, node: makeSymptom(each), words: wordsOf(Object.values(each).flat(3).join(" ")) }));
  const groups = [...new Set(symptoms.map(({ group }) => group))].map((group) => {
    const inside = items.filter((each) => each.group === group);
    return { inside, node: make("section", {}, make("h3", {}, group), ...inside.map(({ node }) => node)) };
  });
  const none = make("p", { class: "muted", role: "status" });
  const search = make("input", { type: "search", id: "symptom-search", maxlength: 100, autocomplete: "off", placeholder: "mask, NaN, repeats, BLEU …", oninput: find });

  function find() {
    const wanted = wordsOf(search.value);
    for (const { node, words } of items) node.hidden = !wanted.every((word) => words.some((each) => each.startsWith(word)));
    for (const { node, inside } of groups) node.hidden = inside.every((each) => each.node.hidden);
    none.textContent = groups.every(({ node }) => node.hidden) ? "No question has these words." : "";
  }

  article.replaceChildren(
    make("h2", { class: "title", tabindex: "-1" }, "Start from what you see"),
    make("p", { class: "muted" }, "Questions that people ask about their models, with the usual causes and what to measure. The doctor on the Report tab makes most of these measurements on a run."),
    make("div", { class: "tools" }, make("label", { for: search.id }, "Find"), search),
    none, ...groups.map(({ node }) => node));
  const linked = items.find(({ id }) => id === readAddress().get("symptom"));
  if (!linked) return;
  linked.node.open = true;
  linked.node.scrollIntoView({ block: "center" });
}
