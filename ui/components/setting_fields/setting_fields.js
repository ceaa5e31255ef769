// The fields of the preset form, and which run's weights to start from. The values are here, and are sent with every
// event that reads the form.
// Event: 'input', after the visitor changed a value.

import { make, partsOf, setText, uniqueName } from "../../web/dom.js";
import { inTab } from "../../web/remembered.js";
import { afterTyping, leftOut } from "../../web/run_search.js";

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);
  const sections = new Map(); // { label, fields, key } by name; an opened section stays open
  const fields = new Map(); // { read, write, hint } by key, of the open preset
  let edition = null;
  let starts = []; // { name, title, reason } of the runs to start from
  let others = {}; // { unlisted, unsearched }: how many runs are not among them
  let startsListed = 0; // when they were looked up; an answer that comes later may have looked earlier
  let chosen = ""; // name of one of them

  function submit() {
    const values = Object.fromEntries([...fields].map(([key, { read }]) => [key, read()]));
    props.value = { edition, values, start_from: chosen, start_search: part("start-search").value.trim() };
  }

  function changed() {
    submit();
    trigger("input", {});
  }

  function makeField({ key, id, name, kind, options }) {
    const hint = make("span", { class: "hint", id: id + "-hint" });
    const shared = { id: id + "-input", "aria-describedby": hint.id, oninput: changed };
    const label = make("label", { class: "name", for: shared.id, "data-term": name === "d_model" ? name : null }, name);
    const node = make("div", { class: "setting " + kind, id });
    let field;
    if (kind === "choice") {
      const group = uniqueName(name);
      const radios = options.map((value) => make("input", { type: "radio", name: group, value, onchange: changed }));
      node.append(make("fieldset", { "aria-describedby": hint.id }, make("legend", { class: "name" }, name), hint,
        make("div", { class: "choices" }, ...radios.map((radio) => make("label", {}, radio, radio.value)))));
      field = {
        read: () => options[radios.findIndex((radio) => radio.checked)] ?? null,
        write: (value) => radios.forEach((radio, at) => (radio.checked = options[at] === value)),
      };
    } else if (kind === "check") {
      const box = make("input", { type: "checkbox", ...shared });
      node.append(make("div", { class: "line" }, box, label), hint);
      field = { read: () => box.checked, write: (value) => (box.checked = value) };
    } else {
      const isNumber = kind === "number";
      const box = make("input", { type: isNumber ? "number" : "text", step: isNumber ? "any" : null, autocomplete: "off", ...shared });
      node.append(label, hint, box);
      field = {
        read: () => (isNumber ? (Number.isFinite(box.valueAsNumber) ? box.valueAsNumber : null) : box.value),
        write: (value) => (box.value = value ?? ""),
      };
    }
    fields.set(key, { ...field, node, hint });
    return node;
  }

  function sectionOf(name) {
    if (!sections.has(name)) {
      const label = make("span");
      const grid = make("div", { class: "grid" });
      part("sections").append(make("details", { class: "fold", id: "section-" + name }, make("summary", {}, label), grid));
      sections.set(name, { label, grid, key: "" });
    }
    return sections.get(name);
  }

  /** Make the fields of the open preset; those of the earlier one stay where they are the same. */
  function makeFields(described) {
    for (const { name, fields: listed } of described) {
      const section = sectionOf(name);
      const key = JSON.stringify(listed.map(({ key, kind, options }) => [key, kind, options]));
      if (key === section.key) continue;
      for (const known of [...fields.keys()]) if (known.startsWith(name + ".")) fields.delete(known);
      section.grid.replaceChildren(...listed.map(makeField));
      section.key = key;
    }
  }

  function describe(described) {
    for (const { name, label, fields: listed } of described) {
      if (label) setText(sectionOf(name).label, label);
      for (const { key, hint, invalid } of listed) {
        const field = fields.get(key);
        setText(field.hint, (invalid ? "✗ " : "") + hint);
        field.node.classList.toggle("invalid", invalid);
        for (const input of field.node.querySelectorAll("input")) input.setAttribute("aria-invalid", String(invalid));
      }
    }
  }

  function keep(text) {
    if (text) inTab.set(props.kept, text);
    else inTab.remove(props.kept);
  }

  /** Show the runs to start from; those that do not fit cannot be chosen, and say why. */
  function showStarts() {
    const select = part("start-run");
    const option = ({ name, title, reason }) =>
      make("option", { value: name, disabled: Boolean(reason) }, title + (reason ? ": " + reason : ""));
    const group = (label, listed) => (listed.length ? make("optgroup", { label }, ...listed.map(option)) : null);
    const groups = [
      group("the best weights of a run", starts.filter((each) => !each.reason)),
      group("runs that do not fit", starts.filter((each) => each.reason)),
    ];
    if (!starts.some((each) => each.name === chosen)) chosen = "";
    select.replaceChildren(make("option", { value: "" }, "random weights"), ...groups.filter(Boolean));
    select.value = chosen;
    const reason = starts.find((each) => each.name === chosen)?.reason;
    const about = chosen ? "its best weights; optimizer and schedule start anew" : "or the best weights of a run, to fine-tune it";
    setText(part("start-hint"), reason ? "✗ " + reason : about);
    part("start").classList.toggle("invalid", Boolean(reason));
    const search = part("start-search").value.trim();
    const left = leftOut(others, search);
    part("start-search").hidden = !left && !search; // as long as all runs are listed
    part("start-unlisted").hidden = !left;
    setText(part("start-unlisted"), left);
    part("start").hidden = !starts.length && part("start-search").hidden;
  }

  afterTyping(part("start-search"), changed);

  part("start-run").addEventListener("change", (event) => {
    chosen = event.target.value;
    showStarts();
    changed();
  });

  /** Take a value from Python. What is typed meanwhile is newer than the answer to what was typed before. */
  function applyValue() {
    const { sections: described, values, kept, edition: opened, starts: found, listed, start_from } = props.value ?? {};
    if (!described?.length && !found) return; // it is from here
    if (found && (values || (opened === edition && listed >= startsListed))) {
      ({ starts, ...others } = found);
      startsListed = listed;
    }
    if (values) {
      edition = opened;
      chosen = start_from ?? "";
      makeFields(described);
      for (const [key, value] of Object.entries(values)) fields.get(key).write(value);
    }
    showStarts();
    if (described && opened === edition) {
      describe(described);
      if (kept !== undefined) keep(kept);
    }
    submit();
  }

  applyValue();
  watch("value", applyValue);
}
