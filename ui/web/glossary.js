// The words of the field that the page uses, explained in two lines each. An element whose text is one of them, or that
// names one in `data-term`, has its explanation as its tooltip; page.js loads this script when a word is pointed at.

const GLOSSARY = {
  "exact match": "The share of whole answers that are correct, token by token.\nThe model reads its own output and must stop at the right place.",
  "teacher-forced": "The decoder reads the reference instead of its own output.\nThat is easier: an error does not lead to the next one.",
  "validation loss": "The mean negative log probability of the correct token, in nats.\nMeasured on validation inputs, which the model is not trained on.",
  "watched pairs loss": "The mean negative log probability of the correct token, in nats.\nMeasured on the pairs that your own loop watches, whether or not it trains on them.",
  loss: "The mean negative log probability of the correct token, in nats.\n0 is certain and right; ln(size of the vocabulary) is guessing.",
  "train loss": "The loss on the batch of the update, with dropout and label smoothing if the preset has them.\nThe validation loss has neither, so it can be lower.",
  perplexity: "e to the power of the loss.\nHow many equally probable tokens the model hesitates between.",
  "token accuracy": "The share of correct tokens when the decoder reads the reference.\nUsually higher than exact match, for which one wrong token is too many.",
  "free-running": "The decoder reads its own output, as when it answers.\nErrors can lead to further errors.",
  greedy: "Take the most probable token in each step.\nThe answer need not be the most probable one as a whole.",
  beam: "Keep the most probable beginnings of the answer, as many as the beam is wide.\nAt the end, take the best of them.",
  sample: "Draw each token by its probability.\nThe same input can have another answer next time.",
  "learning rate": "How far an update moves the parameters against the gradient.\nIt rises during warm-up and then falls.",
  Muon: "An optimizer that makes each matrix's update orthogonal before it is applied.\nFewer updates for the layers' matrices; the other parameters use Adam.",
  seed: "The number from which all random numbers of a training come.\nAnother seed: other initial weights and other batches.",
  parameters: "The numbers that training adjusts.\nAll weights of embeddings, attention, feed-forward networks and norms.",
  "cross-attention": "Queries from the decoder, keys and values from the encoder.\nWhere each step of the answer looks in the input.",
  "encoder self-attention": "Queries, keys and values from the input.\nWhere each token of the input looks in the input.",
  "decoder self-attention": "Queries, keys and values from the answer written so far.\nWhere each step looks in the answer.",
  "residual stream": "The vector of each token that runs through all layers.\nEach sublayer adds its output to it.",
  BLEU: "How many runs of 1 to 4 words a translation shares with the reference, 0 to 100.\nFew translations equal the reference; above 50 is very close.",
  "character BLEU": "BLEU with characters instead of words, 0 to 100.\nFor languages and spellings that spaces do not split.",
  "training pairs": "The accuracy on a fixed sample of pairs that the model trains on, at most 64.\nFar above that of validation inputs, the model has memorized its pairs.",
  "error rate": "The share of answers that equal none of the references of their input.\nAn input may have several correct answers.",
  "token error rate": "Tokens to insert, delete or replace to get the nearest reference, per token of it.\nAn answer with one wrong token of twenty counts 5 %.",
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
export function explanationOf(term) {
  const word = term.trim();
  const known = [word, word.charAt(0).toLowerCase() + word.slice(1)].find((each) => Object.hasOwn(GLOSSARY, each));
  return known ? GLOSSARY[known] : "";
}
