// White space and sentences, as Python and core/text/sentences.py tell them apart.

/** The white space of Python's str.split, for a class of a regular expression; \s has U+FEFF, too, and lacks U+001C to U+001F and U+0085. */
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

/** A regular expression in which <s> is a white space. */
const expression = (source, flags = "u") => new RegExp(source.replaceAll("<s>", "[" + SPACE + "]"), flags);

const [START, END, SPACES] = ["^<s>+", "<s>+$", "<s>+"].map((each) => expression(each));

export const stripEnd = (text) => text.replace(END, "");
export const strip = (text) => stripEnd(text).replace(START, "");
export const words = (text) => text.split(SPACES).filter(Boolean);

/** A text with its invisible characters, of the categories Cc and Cf, as U+200B. */
export const visible = (text) => text.replace(/[\p{Cc}\p{Cf}]/gu, code);
export const code = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// A run of end marks with closing quotes or brackets, and the space after it; or a line break.
const BREAK = expression(String.raw`(?<![.!?…:])([.!?…:]+)["'”’“»)\]]*<s>+|\n<s>*`, "gu");
const LAST_WORD = expression(String.raw`[^(\["'„“”‘’«»${SPACE}]*$`);
const LONGEST_WORD = 30; // characters before a period that are checked
const ABBREVIATIONS = ("mr mrs ms dr prof st vs cf approx dept est inc ltd jr sr hr fr str nr ca bzw vgl evtl ggf inkl exkl bsp tel sog "
  + "zzgl abzgl mind max min jan feb mar apr aug sept sep okt oct nov dez dec").split(" ");
const BEFORE_NUMBERS = "no nos p pp s vol fig figs abb art sec kap ch bd ver rev".split(" ");
const LETTERS = /^\p{L}(?:\.\p{L})*$/u; // an initial, or "e.g", "z.B"
const ORDINAL = /^\p{Nd}{1,2}$/u; // "am 3. Mai", "1. Choose a file"

/** Split a text after . ! ? … : and at line breaks; each sentence has the white space after it. */
export function splitSentences(text) {
  const sentences = [];
  let start = 0;
  for (const match of text.matchAll(BREAK)) {
    const end = match.index + match[0].length;
    const sentence = text.slice(start, end);
    if (end === text.length || !endsSentence(text, match, end) || !strip(sentence)) continue;
    sentences.push(sentence);
    start = end;
  }
  return start < text.length ? [...sentences, text.slice(start)] : sentences;
}

function endsSentence(text, match, end) {
  if (match[0].includes("\n")) return true;
  const following = String.fromCodePoint(text.codePointAt(end));
  if (/\p{Lowercase}/u.test(following)) return false;
  if (match[1] !== "." || strip(match[0]) !== ".") return true;
  const word = text.slice(Math.max(0, match.index - LONGEST_WORD), match.index).match(LAST_WORD)[0].toLowerCase();
  const isAbbreviation = ABBREVIATIONS.includes(word) || (/\p{Nd}/u.test(following) && BEFORE_NUMBERS.includes(word));
  return !(isAbbreviation || LETTERS.test(word) || ORDINAL.test(word));
}
