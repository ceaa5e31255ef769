// Numbers, durations and tokens as text.

/** A number with three significant digits: 12.3, 0.0213, 2.1e-5. */
export function formatNumber(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1000) return String(Math.round(value));
  return size >= 0.001 ? value.toPrecision(3) : value.toExponential(1);
}

/** A fraction as a percentage, as `percent` of core/config/counting.py writes it: 0 % and 100 % only if exact. */
export function formatPercent(fraction, digits = 1) {
  if (fraction == null || !Number.isFinite(fraction)) return "–";
  if (fraction === 0 || fraction === 1) return 100 * fraction + " %";
  const percent = 100 * fraction;
  const finest = 10 ** -(digits + 1);
  if (percent > 0 && percent < finest) return "< " + finest.toFixed(digits + 1) + " %";
  if (percent < 100 && percent >= 100 - finest) return "> " + (100 - finest).toFixed(digits + 1) + " %";
  if (percent > 0 && percent < 10 * finest) return fixed(percent, digits + 1) + " %";
  const rounded = fixed(percent, digits);
  if (percent > 100 || Number(rounded) < 100) return rounded + " %";
  return (Math.floor(fraction * 10 ** (digits + 3)) / 10 ** (digits + 1)).toFixed(digits + 1) + " %";
}

const rounding = new Map(); // by number of digits

/** A number with a fixed number of digits, rounded as Python does: of two equally near, to the even one. */
function fixed(value, digits) {
  if (!rounding.has(digits)) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven", useGrouping: false };
    rounding.set(digits, new Intl.NumberFormat("en", options));
  }
  return rounding.get(digits).format(value);
}

/** Two fractions as percentages, with as many digits as it takes to tell different ones apart, at most six. */
export function formatPercents(one, other) {
  const digits = [1, 2, 3, 4, 5, 6].find((each) => formatPercent(one, each) !== formatPercent(other, each));
  return [formatPercent(one, digits ?? 1), formatPercent(other, digits ?? 1)];
}

/** A figure that decides how good a run is, without its name: BLEU as a score, perplexity as a number, others in percent. */
export function formatFigure({ measure, value }, digits = 1) {
  if (value == null) return "–";
  if (measure === "bleu") return value.toFixed(1);
  return measure === "perplexity" ? value.toFixed(2) : formatPercent(value, digits);
}

/** The figures of a run that decide, the first first: "exact match 75.0 %, BLEU 82.0"; "" if nothing was measured. */
export const formatResult = ({ headline }, digits = 1) =>
  (headline ?? []).map((figure) => figure.name + " " + formatFigure(figure, digits)).join(", ");

/** A duration in one or two units. */
export function formatSeconds(seconds) {
  if (seconds < 1) return "<1 s";
  if (seconds < 90) return Math.round(seconds) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

/** "starts now", or "starts in about 5 s". */
export const startText = (seconds) => (seconds < 1 ? "starts now" : "starts in about " + formatSeconds(seconds));

/** "1 head", "2,000 heads": a number and a noun that takes an s. */
export const counted = (number, noun) => Number(number).toLocaleString("en") + " " + noun + (Number(number) === 1 ? "" : "s");

const INVISIBLE = /^[\p{Cc}\p{Cf}\ufe00-\ufe0f]$/u; // alone: inside a word or an emoji they change what is seen

/** A token with visible signs for spaces, for the empty string and for one invisible character, such as U+200D. */
export function visibleToken(token) {
  const text = String(token);
  if (text === "") return "∅";
  if (text.trim() === "") return "␣".repeat(text.length);
  return text.replace(INVISIBLE, (sign) => "U+" + sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0"));
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u202b\u202e\u2067]/; // letters, and marks that order

/** A text for a sentence with other texts, as `isolated` of core.text.direction: Hebrew or Arabic would reorder the numbers beside it. */
export const isolated = (text) => (RIGHT_TO_LEFT.test(text) ? "\u2068" + text + "\u2069" : text);

/** Names of the attention blocks, as BLOCK_NAMES of ui/attention_blocks.py. */
export const BLOCK_NAMES = { cross: "cross-attention", decoder: "decoder self-attention", encoder: "encoder self-attention" };

/** "layer 2, head 1", as people read a head whose block is said elsewhere. */
export const headName = ({ layer, head }) => "layer " + layer + ", head " + head;

/** A subword piece as people read it, as core.text.pieces.piece_name does: "Haus" for "▁Haus", "·tür" for "tür". */
export function pieceName(token) {
  if (/^<(0x[0-9A-F]{2}|PAD|BOS|EOS|UNK)>$/.test(token)) return token;
  if (!token.startsWith("▁")) return "·" + visibleToken(token);
  return token.slice(1).replaceAll("▁", "␣") || "␣";
}

/** The function that names the tokens of a task, which are subwords or not. */
export const tokenNamer = (subwords) => (subwords ? pieceName : visibleToken);
