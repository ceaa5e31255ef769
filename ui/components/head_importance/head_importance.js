// What a model gets right without each of its heads: a button a head and a layer, which knocks it out and puts it back.
// Value: { run, intact, sequences, step, measured, total, seconds_left, note, rows: [{ label, cells: [{ name, label,
// exact_match }] }] }; figures that are not measured yet are null. Beside it: interventions { out, forced }, and measuring.
// Event: 'toggle' {name}.

const buttons = new Map(); // by name; made once a model, so that figures and presses do not take the keyboard's place
let made = "";

// ---- words ----

/** "40 %", or "99.6 %". */
function inPercent(share) {
  return formatPercent(share, Number.isInteger(Math.round(share * 1000) / 10) ? 0 : 1);
}

function inPoints(loss) {
  const points = Math.round(Math.abs(loss) * 1000) / 10;
  return points + (points === 1 ? " point" : " points");
}

/** How exact match without a head compares with that of the whole model. */
function comparedWith(intact, share) {
  const loss = intact - share;
  if (Math.abs(loss) < 0.0005) return "the same as with all heads";
  return inPoints(loss) + (loss > 0 ? " less" : " more") + " than with all heads";
}

function asSentence(name, share, intact) {
  return "without " + name + ": exact match " + inPercent(share) + ", " + comparedWith(intact, share);
}

/** Whether a head is out: itself, or with its layer. */
function isOut(name, out) {
  return out.some((each) => name === each || name.startsWith(each + "."));
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
  const { out, forced } = props.interventions ?? { out: [], forced: {} };
  const pressed = isOut(cell.name, out);
  const pattern = forced[cell.name];
  const known = cell.exact_match != null;
  button.setAttribute("aria-pressed", String(pressed));
  setText(button.firstChild, (pressed ? "✕ " : pattern ? "→ " : "") + cell.label);
  setText(button.lastChild, known ? inPercent(cell.exact_match) : "–");
  button.setAttribute("aria-label", known
    ? asSentence(cell.name, cell.exact_match, intact)
    : "without " + cell.name + ": not measured");
  button.title = pattern ? cell.name + " is forced to " + pattern : cell.name;
  const loss = known ? Math.min(1, Math.max(0, intact - cell.exact_match)) : 0;
  button.style.background = "color-mix(in srgb, var(--loss) " + Math.round(100 * loss) + "%, var(--background-fill-primary))";
}

// ---- the lines ----

/** The figure that says most: of what is out, else of the head that costs most. */
function sayWorth(value, cells) {
  const measured = cells.filter((cell) => cell.exact_match != null);
  const out = props.interventions?.out ?? [];
  const chosen = out.length === 1 ? measured.find((cell) => cell.name === out[0]) : null;
  const heads = measured.filter((cell) => cell.label !== "all");
  const least = heads.reduce((one, other) => (other.exact_match < one.exact_match ? other : one), heads[0]);
  const complete = value.measured === value.total;
  const shown = chosen ?? (complete ? least : null);
  part("worth").hidden = !shown;
  const about = chosen || !shown ? "" : " – no other head costs more";
  if (shown) setText(part("worth"), asSentence(shown.name, shown.exact_match, value.intact).replace(/^w/, "W") + about + ".");
}

function sayHow(value) {
  const measured = value.intact == null
    ? "Not measured yet: press a head to knock it out, or measure all."
    : "With all heads: " + inPercent(value.intact) + " of " + value.sequences.toLocaleString("en") +
      " held-out inputs answered exactly, by the weights after step " + value.step + ".";
  setText(part("intact"), measured);
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
  const cells = value.rows.flatMap((row) => row.cells);
  const names = cells.map((cell) => cell.name).join(" ");
  if (names !== made) {
    buttons.clear();
    element.querySelector("tbody").replaceChildren(...value.rows.map(makeRow));
    made = names;
  }
  for (const cell of cells) fill(buttons.get(cell.name), cell, value.intact);
  sayHow(value);
  sayWorth(value, cells);
}

show();
watch(["value", "interventions", "measuring"], show);
