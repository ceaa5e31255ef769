// Runs side by side: who wins how often, figures, the settings that differ, and curves by step and by length.

const FEW_SETTINGS = 6; // more are folded away: a Transformer and a GRU differ in fourteen
const FEW_PAIRS = 3;
const LETTERS = "ABCDEFGHIJKLMNOPQRST";
let charts = [];

const counted = (number) => number.toLocaleString("en");
const groupName = (group) => group.label + (group.n > 1 ? " (" + group.n + " seeds)" : "");

// ---- tables ----

function fill(table, head, rows) {
  const cell = (text, at, tag) => make(tag, { scope: tag === "td" ? false : "col", class: at ? "number" : false }, text);
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text, at) => cell(text, at, "th")))),
    make("tbody", {}, ...rows.map(([kind, first, ...rest]) => make("tr", { class: kind },
      make("th", { scope: "row" }, first), ...rest.map((text, at) => cell(text, at + 1, "td"))))));
}

const points = (sd) => (100 * sd).toFixed(2);
const share = ({ mean, sd }) => formatPercent(mean, 2) + (sd == null ? "" : " ± " + points(sd));
const plain = (digits) => ({ mean, sd }) => mean.toFixed(digits) + (sd == null ? "" : " ± " + sd.toFixed(digits));
const FIGURES = [
  ["exact match", "exact_match", share],
  ["free-running tokens", "token_accuracy_free_running", share],
  ["teacher-forced tokens", "token_accuracy", share],
  ["loss", "loss", plain(4)],
  ["trained, s", "seconds", plain(1)],
];

function figureRows(value) {
  return value.groups.flatMap((group, place) => {
    const members = value.runs.filter((run) => group.runs.includes(run.run));
    const of = (run, name) => [
      ...FIGURES.map(([, key, write]) => write({ mean: run[key], sd: null })),
      counted(run.parameters), run.weights + ", step " + run.step,
    ];
    if (group.n === 1) return [["", LETTERS[place] + "  " + group.label, ...of(members[0])]];
    const figures = FIGURES.map(([, key, write]) => write(group.figures[key]));
    const parameters = counted(members[0].parameters);
    return [["group", LETTERS[place] + "  " + groupName(group), ...figures, parameters, ""],
      ...members.map((run) => ["member", run.run, ...of(run)])];
  });
}

function showSettings(value) {
  const rows = Object.entries(value.settings).map(([key, values]) => ["", key, ...values.map((each) => each ?? "–").map(String)]);
  part("differing").hidden = rows.length === 0;
  part("differing").open = rows.length <= FEW_SETTINGS;
  setText(element.querySelector(".differing > summary"), "Settings that differ: " + rows.length);
  fill(part("settings"), ["setting", ...value.groups.map((group, place) => LETTERS[place] + "  " + group.label)], rows);
  setText(part("same"), rows.length ? "" : "No setting differs" + (value.groups.length === 1 ? ", but the seed." : "."));
}

/** Each pair in a sentence; of more than a few, the groups in one, and the pairs as a table to unfold. */
function showVerdict(value) {
  const { groups, pairs } = value;
  if (pairs.length <= FEW_PAIRS) return part("verdict").replaceChildren(...pairs.map((pair) => make("p", {}, pair.in_words)));
  const table = make("table");
  fill(table, ["first run", "second run", "wins of the first", "of the second", "alike", "points apart", "95 % interval", "p"],
    pairs.map((pair) => ["", pair.first, pair.second,
      ...[pair.wins, pair.losses, pair.ties].map(counted), ...pair.points, pair.p.replace("p = ", "")]));
  const said = groups.map((group) => groupName(group) + " " + share(group.figures.exact_match));
  part("verdict").replaceChildren(
    make("p", {}, "Exact match: " + said.join(", ") + "."),
    make("details", {}, make("summary", {}, "Every two runs, input by input: " + pairs.length + " pairs"),
      make("p", {}, "A win is an input that only this one of the two answers exactly. p is that of the exact McNemar test: "
        + "how likely a split at least so uneven is if both are equally good."),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "wins and losses of every two runs" }, table)));
}

// ---- charts ----

const named = (value, curves) => value.groups.map((group, place) => ({
  letter: LETTERS[place], label: groupName(group), n: group.n, ...curves(group, place),
}));
const percentTick = (share) => Math.round(100 * share) + " %";
const percentExact = (share) => formatPercent(share);

function chartsOf(value) {
  const band = value.groups.some((group) => group.n > 1)
    ? " A band is one standard deviation over the seeds to either side of their mean." : "";
  const byStep = { across: "step", name: String };
  const found = [
    {
      ...byStep, title: "Validation loss", series: named(value, (group) => group.by_step.validation_loss),
      format: tickText, exact: formatNumber, log: true, canBeLog: true,
      caption: "By training step, in nats per token; lower is better." + band,
    },
    {
      ...byStep, title: "Exact match while training", series: named(value, (group) => group.by_step.exact_match),
      format: percentTick, exact: percentExact, fixed: [0, 1],
      caption: "By training step: whole answers right on validation inputs, free-running." + band,
    },
  ];
  const { lengths } = value;
  if (!lengths) return found;
  const [first, last] = lengths.trained;
  const limits = Object.entries(lengths.limits).map(([run, limit]) => " " + run + " goes no further: " + limit + ".").join("");
  const byLength = {
    across: lengths.unit, name: (length) => length + (length < first || length > last ? " (not trained on)" : ""),
    format: percentTick, exact: percentExact, fixed: [0, 1], from: 0.5,
    shade: { from: first - 0.5, to: last + 0.5, label: "trained on" },
  };
  return [...found,
    {
      ...byLength, title: "Exact match by length", series: named(value, (_, place) => lengths.groups[place].exact_match),
      caption: "By " + lengths.unit + ", up to " + Math.max(...lengths.inputs) + " held-out inputs each; shaded: the lengths trained on." + limits,
    },
    {
      ...byLength, title: "Tokens right by length", series: named(value, (_, place) => lengths.groups[place].token_accuracy),
      caption: "Free-running: share of the right answers' tokens, EOS included, that were written at their very places.",
    }];
}

// ---- the whole ----

const redraw = inNextFrame(() => charts.forEach((chart) => chart.draw()));

function show() {
  const value = props.value;
  const found = Boolean(value?.runs);
  part("found").hidden = !found;
  part("working").hidden = !value?.progress;
  part("empty").hidden = Boolean(value);
  if (value?.progress) {
    part("bar").value = value.progress.done;
    setText(part("doing"), "Measuring " + value.progress.run + " … " + Math.round(100 * value.progress.done) + " % of the work done");
  }
  if (!found) return;
  setText(part("heading"), value.task + ": " + counted(value.sequences) + " held-out inputs, the same for all");
  part("legend").replaceChildren(...value.groups.map((group, place) =>
    make("li", {}, sampleOf(place), make("span", {}, LETTERS[place] + "  " + groupName(group)))));
  showVerdict(value);
  setText(part("cautions"), value.cautions.join(" "));
  fill(part("figures"), ["run", ...FIGURES.map(([label]) => label), "parameters", "weights"], figureRows(value));
  setText(part("figures-note"), "Free-running: the model reads what it wrote itself; teacher-forced: the true answer so far."
    + (value.groups.some((group) => group.n > 1) ? " ± is the standard deviation over the seeds, of shares in points." : ""));
  showSettings(value);
  charts = chartsOf(value).map(makeChart);
  part("charts").replaceChildren(...charts.map((chart) => chart.box));
  redraw();
}

show();
onLookChange(redraw);
watch("value", show);
