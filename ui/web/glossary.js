// The words of the field that the page uses, explained in two lines each. An element with `data-term` has the explanation
// of that term, or of its own text, as its tooltip; page.js loads this script when the first one is pointed at.

const GLOSSARY = {
  "exact match": "The share of whole answers that are correct, token by token.\nThe model reads its own output and must stop at the right place.",
  "teacher-forced": "The decoder reads the reference instead of its own output.\nThat is easier: an error does not lead to the next one.",
  "validation loss": "The mean negative log probability of the correct token, in nats.\nMeasured on validation inputs, which the model is not trained on.",
  BLEU: "How many runs of 1 to 4 words a translation shares with the reference, 0 to 100.\nFew translations equal the reference; above 50 is very close.",
  "character BLEU": "BLEU with characters instead of words, 0 to 100.\nFor languages and spellings that spaces do not split.",
  chrF: "How many runs of 1 to 6 characters a translation shares with the reference, 0 to 100.\nUnlike BLEU, it credits a word with another ending.",
  "gold alignment": "The source token that the correct output token comes from, as the task defines it.\nA head that attends there reads what it should; dashed frames mark it.",
  d_model: "The number of values in the vector of each token.\nEvery layer reads and writes vectors of this size.",
  "gradient norm": "The length of the gradient of all parameters before clipping.\nA spike marks an unstable step.",
  "<PAD>": "Fills shorter sequences of a batch up to the longest.\nA mask hides it from attention, and the loss leaves it out.",
  "<BOS>": "Beginning of the sequence: what the decoder reads first.\nHeads without anything to attend to often attend to it.",
  "<EOS>": "End of the sequence: the model stops when it produces it.\nAn answer without it is not complete.",
  "<UNK>": "Stands for a token that the vocabulary does not have.\nThe model cannot tell such tokens apart.",
};

/** The explanation of a term, or "" without one. */
export const explanationOf = (term) => GLOSSARY[term.trim()] ?? "";
