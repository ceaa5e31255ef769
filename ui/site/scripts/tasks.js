// How typed text becomes tokens, and the correct answer: the counterparts of Task.tokenize and Task.answer of the tasks
// that the site trains. A test compares them with the program's.

import { Problem } from "./problem.js";
import { spelledInBytes, splitText } from "./subwords.js";
import { code, splitSentences, strip, visible, words } from "./text.js";

const MAX_CHARACTERS = 2000; // of an input
const MAX_SENTENCES = 50; // of an input that is translated sentence by sentence
const NAMED = 8; // unknown characters or words at most in a message
const SHOWN_CHARACTERS = 20; // of an unknown word

/** Refuse an input that the program refuses before any task reads it; see core/text/validation.py. */
function checkText(text) {
  const characters = [...text];
  if (characters.length > MAX_CHARACTERS) {
    throw new Problem("The input has " + characters.length.toLocaleString("en") + " characters; the maximum is " + MAX_CHARACTERS.toLocaleString("en") + ".");
  }
  const refused = characters.findIndex((each) => /[\p{Cc}\p{Cs}]/u.test(each) && !"\t\n\r".includes(each));
  if (refused >= 0) throw new Problem("The input has the character " + code(characters[refused]) + " at position " + (refused + 1) + ", which is not allowed.");
}

/** The sentences of an input, each with the white space after it; the whole unless the task translates. */
export function sentencesOf({ task }, text) {
  checkText(text);
  const sentences = task.translates ? splitSentences(text) : [];
  if (sentences.length > MAX_SENTENCES) throw new Problem("The input has " + sentences.length + " sentences; the maximum is " + MAX_SENTENCES + ".");
  return sentences.length > 1 ? sentences : [text];
}

/**
 * Split typed text into the tokens of a task, { symbols, note }; the note says what of it the vocabulary does not have,
 * or is "". Throws a Problem that says what is wrong with the text.
 */
export function readInput(facts, text) {
  const { task, examples, source_tokens, first_symbol, has_unk, model } = facts;
  checkText(text);
  const typed = strip(task.reads === "letters" ? text : text.replaceAll(",", " "));
  if (!typed) throw new Problem("The input is empty; an example: " + examples[0]);
  const tokens = task.reads === "subwords" ? splitText(facts, strip(text)) : readers[task.reads](task, typed, examples);
  if (tokens.length + 2 > model.max_seq_len) {
    throw new Problem("The input has " + tokens.length.toLocaleString("en") + " tokens, " + (tokens.length + 2).toLocaleString("en") + " with <BOS> and <EOS>; this model reads " + model.max_seq_len + ".");
  }
  const known = source_tokens.slice(first_symbol);
  const isUnknown = (token) => !known.includes(token);
  const inBytes = task.reads === "subwords";
  const unknownAt = inBytes ? -1 : tokens.findIndex(isUnknown);
  if (unknownAt >= 0 && !has_unk) {
    throw new Problem(quoted(tokens[unknownAt]) + " at position " + (unknownAt + 1) + " is not one of " + known.slice(0, 12).join(" ") + (known.length > 12 ? " …" : "") + ".");
  }
  const unknown = inBytes ? spelledInBytes(tokens) : { parts: [...new Set(tokens.filter(isUnknown))], isAll: tokens.every(isUnknown) };
  if (unknown.parts.length && unknown.isAll) throw new Problem("The model’s vocabulary has nothing of this input: " + named(unknown.parts) + ".");
  return {
    symbols: inBytes ? tokens : tokens.map((token) => (isUnknown(token) ? "<UNK>" : token)),
    note: unknown.parts.length ? "not in the vocabulary, read as " + (inBytes ? "bytes" : "<UNK>") + ": " + named(unknown.parts) : "",
  };
}

/** An unknown token in quotation marks; an invisible character by its number alone. */
function quoted(token) {
  const shown = visible(token.slice(0, SHOWN_CHARACTERS));
  return [...token].length === 1 && shown !== token ? shown : "“" + shown + "”";
}

/** Unknown characters or words as a list of at most eight. */
function named(unknown) {
  const shown = unknown.slice(0, NAMED).map((each) => visible(strip(each.slice(0, SHOWN_CHARACTERS))) || "white space");
  return shown.join(", ") + (unknown.length > NAMED ? " and " + (unknown.length - NAMED) + " more" : "");
}

const range = (low, high) => low.toLocaleString("en") + (low < high ? "–" + high.toLocaleString("en") : "");

/** How the length of an input differs from those of the training inputs, or "". */
export function lengthNote({ task }, symbols) {
  if (!task.trained_lengths) return "";
  const [shortest, longest] = task.trained_lengths;
  if (task.reads === "addition") {
    const digits = Math.max(...symbols.join("").split("+").map((each) => each.length));
    return digits > longest ? "a number of " + digits + " digits is longer than any training input (" + range(shortest, longest) + " digits)" : "";
  }
  const { length } = symbols;
  if (length >= shortest && length <= longest) return "";
  return (length < shortest ? "shorter" : "longer") + " than any training input (" + range(shortest, longest) + " tokens)";
}

const cases = { "as-is": (text) => text, lower: (text) => text.toLowerCase().normalize("NFC"), upper: (text) => text.toUpperCase().normalize("NFC") };

const readers = {
  letters: (task, typed) => [...cases[task.case](typed)],
  symbols: (task, typed) => (task.characters ? [...words(typed).join("")] : words(task.in_words ? typed.toLowerCase().replace(/[.;:!?]/g, " ") : typed)),
  addition(task, typed, examples) {
    const joined = words(typed).join("");
    if (/[^0-9+]/.test(joined)) return [...joined]; // refused by what the vocabulary does not have
    const found = joined.match(/^([0-9]+)\+([0-9]+)$/);
    if (!found) throw new Problem("The input must be two numbers with one + between them: " + examples[0]);
    const operands = found.slice(1).map((digits) => digits.replace(/^0+(?=.)/, ""));
    const width = task.has_zeros ? Math.max(task.max_digits, ...operands.map((each) => each.length)) : 0;
    const [first, second] = operands.map((each) => inOrder([...each.padStart(width, "0")], task.reverses_operands));
    return [...first, "+", ...second];
  },
};

const inOrder = (digits, isReversed) => (isReversed ? [...digits].reverse() : digits);

const transforms = {
  reverse: (symbols) => symbols.map((_, at) => symbols.length - 1 - at),
  copy: (symbols) => symbols.map((_, at) => at),
  sort: (symbols, rank) => symbols.map((_, at) => at).sort((a, b) => rank(symbols[a]) - rank(symbols[b]) || a - b),
  deduplicate: (symbols) => symbols.map((_, at) => at).filter((at) => symbols.indexOf(symbols[at]) === at),
};

/** The correct answer and, for each of its symbols, the indices of the input symbols it may come from. */
export function solve({ task, source_tokens }, symbols) {
  if (task.reads === "addition") return { answer: sum(task, symbols), sources: [] };
  if (task.reads !== "symbols") return { answer: null, sources: [] };
  const positions = transforms[task.transform](symbols, (symbol) => source_tokens.indexOf(symbol));
  const isAny = ["sort", "deduplicate"].includes(task.transform); // which of several equal symbols is not determined
  const sources = positions.map((position) => (isAny ? symbols.map((_, at) => at).filter((at) => symbols[at] === symbols[position]) : [position]));
  return { answer: positions.map((position) => symbols[position]), sources };
}

function sum(task, symbols) {
  const [first, second] = symbols.join("").split("+").map((digits) => BigInt(inOrder([...digits], task.reverses_operands).join("")));
  const width = task.has_zeros ? Math.max(...symbols.join("").split("+").map((each) => each.length)) + 1 : 0;
  return inOrder([...String(first + second).padStart(width, "0")], task.reverses_sum);
}
