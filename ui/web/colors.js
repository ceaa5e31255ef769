// Colors of attention weights: one sequential scale for all maps, with a twin for the dark theme.

const SCALES = {
  light: ["#ffffff", "#e4e6fb", "#bcc0f4", "#8b8fe6", "#5f5ad0", "#4338ca", "#2a2576"],
  dark: ["#141a2a", "#1d2c4a", "#27486f", "#386f99", "#5b9cc4", "#8fc8e8", "#d9f1ff"],
};
const STOPS = Object.fromEntries(Object.entries(SCALES).map(([theme, scale]) =>
  [theme, scale.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)))]));

const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

/** [red, green, blue] of an attention weight; the scale is 0–1 for all maps. */
export function attentionColor(weight, scale = theme()) {
  const stops = STOPS[scale];
  const position = Math.min(1, Math.max(0, weight || 0)) * (stops.length - 1);
  const below = Math.min(Math.floor(position), stops.length - 2);
  const fraction = position - below;
  return stops[below].map((from, channel) => Math.round(from + (stops[below + 1][channel] - from) * fraction));
}

/** The color of text on a weight's color. */
export function inkOn(weight) {
  const dark = theme() === "dark";
  return weight > (dark ? 0.55 : 0.5) ? (dark ? "#0c101c" : "#ffffff") : (dark ? "#e8ecf7" : "#141a2e");
}

/** The color of the outlines of the gold alignment, in both themes. */
export const GOLD = "#ea580c";

const SIGNED = {
  light: { paper: [255, 255, 255], negative: [200, 66, 14], positive: [67, 56, 202] },
  dark: { paper: [28, 36, 56], negative: [255, 155, 99], positive: [155, 156, 255] },
};

/** The color of a number from -1 to 1: orange below 0, the accent above, the paper at 0. */
export function signedColor(number) {
  const { paper, negative, positive } = SIGNED[theme()];
  const end = number < 0 ? negative : positive;
  const amount = Math.min(1, Math.abs(number));
  return "rgb(" + paper.map((from, channel) => Math.round(from + (end[channel] - from) * amount)) + ")";
}
