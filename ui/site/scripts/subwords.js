// Pieces of words: how a text is split as SentencePiece splits it with a BPE vocabulary, and how pieces are shown; the
// counterparts of core/text/subwords.py and pieces.py.

import { Problem } from "./problem.js";
import { strip, words } from "./text.js";

const SPACE = "▁"; // stands for the space before a word
const BYTE = /^<0x([0-9A-F]{2})>$/;
const SPECIAL = ["<PAD>", "<BOS>", "<EOS>", "<UNK>"];
const isByte = (piece) => BYTE.test(piece);
const encoder = new TextEncoder();

const scoresOf = new WeakMap(); // facts → scores by piece

function knownPieces(facts) {
  if (!scoresOf.has(facts)) {
    scoresOf.set(facts, new Map(facts.source_tokens.slice(facts.first_symbol).map((piece, at) => [piece, facts.subword_scores[at]])));
  }
  return scoresOf.get(facts);
}

/** Split a text into the pieces of a run's vocabulary: the pair with the highest score is merged first. */
export function splitText(facts, text) {
  if (text.includes(SPACE)) throw new Problem("The input has the character " + SPACE + " (U+2581), which marks spaces here.");
  if (!text) return [];
  const known = knownPieces(facts);
  const symbols = [...(SPACE + text.replaceAll(" ", SPACE))];
  for (;;) {
    let best = -1;
    for (let at = 0; at + 1 < symbols.length; at += 1) {
      const score = known.get(symbols[at] + symbols[at + 1]);
      if (score !== undefined && (best === -1 || score > known.get(symbols[best] + symbols[best + 1]))) best = at;
    }
    if (best === -1) break;
    symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
  }
  return symbols.flatMap((symbol) => (known.has(symbol) && !isByte(symbol) ? [symbol]
    : Array.from(encoder.encode(symbol), (byte) => "<0x" + byte.toString(16).toUpperCase().padStart(2, "0") + ">")));
}

function joinPieces(pieces) {
  const bytes = pieces.flatMap((piece) => {
    const byte = piece.match(BYTE);
    return byte ? [parseInt(byte[1], 16)] : [...encoder.encode(piece.replaceAll(SPACE, " "))];
  });
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes)).replace(/^ /, "");
}

/** { parts, isAll }: the characters that only bytes spell, white space aside, each once, and whether they are all there is. */
export function spelledInBytes(pieces) {
  const isAll = pieces.every((piece) => isByte(piece) || piece === SPACE);
  const runs = pieces.map((piece) => (isByte(piece) ? piece : " ")).join("").split(" ").filter(Boolean);
  const spelled = runs.flatMap((run) => words(joinPieces(run.match(/<0x[0-9A-F]{2}>/g)))).join("");
  return { parts: [...new Set(spelled)], isAll };
}

/** The text of tokens without the special ones. */
export const sentenceOf = (tokens) => joinPieces(tokens.filter((token) => !SPECIAL.includes(token)));

/** "part" for pieces of letters, digits and bytes, "space", or "alone" for punctuation and special tokens. */
function kindOf(token) {
  if (isByte(token)) return "part";
  const text = token.replaceAll(SPACE, "");
  if (!text) return "space";
  return !SPECIAL.includes(token) && /[\p{L}\p{N}_]/u.test(text) ? "part" : "alone";
}

/** Name and number of pieces of each word, special tokens included. */
export function wordsOf(tokens) {
  const found = [];
  let previous = "alone";
  for (const token of tokens) {
    const kind = kindOf(token);
    const continues = (kind !== "space" && previous === "space") || (kind === "part" && previous === "part");
    if (!continues || token.startsWith(SPACE) || SPECIAL.includes(token)) found.push([]);
    found.at(-1).push(token);
    previous = kind;
  }
  return found.map((pieces) => ({ name: strip(joinPieces(pieces)) || "␣", pieces: pieces.length }));
}

/** What a decode has beside its tokens: sentences, and the words that its pieces make; {} without subwords. */
export function inWords(facts, source, tokens, expected) {
  if (!facts.subword_scores) return {};
  return {
    texts: { source: sentenceOf(source), output: sentenceOf(tokens), expected: expected && sentenceOf(expected) },
    words: { source: wordsOf(source), produced: wordsOf(tokens), read: wordsOf(["<BOS>", ...tokens.slice(0, -1)]) },
  };
}
