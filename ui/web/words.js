// Attention by word: the pieces of a word are combined.
//
// A view (see maps.js) of subwords has `words`: { rows, columns }, each [{ name, pieces }], in order.

/** First piece of each word, and the number of all pieces at the end. */
function startsOf(words) {
  return words.reduce((starts, { pieces }) => [...starts, starts.at(-1) + pieces], [0]);
}

/** The word of each piece. */
const wordOfPiece = (words) => words.flatMap(({ pieces }, word) => Array(pieces).fill(word));

/** Weights[row][column] of words: columns are summed over the pieces of a word, rows averaged. */
export function sumByWord(weights, words) {
  const columnOf = wordOfPiece(words.columns);
  const starts = startsOf(words.rows);
  return words.rows.map(({ pieces }, word) => {
    const sums = Array(words.columns.length).fill(0);
    for (const row of weights.slice(starts[word], starts[word + 1])) {
      row.forEach((weight, column) => { sums[columnOf[column]] += weight / pieces; });
    }
    return sums.map((sum) => Math.round(10000 * sum) / 10000);
  });
}

/** The cell [row, column] of pieces with the largest weight in a cell of words. */
export function strongestPiece(weights, words, { row, column }) {
  const [rows, columns] = [startsOf(words.rows), startsOf(words.columns)];
  let best = { row: rows[row], column: columns[column] };
  for (let r = rows[row]; r < rows[row + 1]; r += 1) {
    for (let c = columns[column]; c < columns[column + 1]; c += 1) {
      if (weights[r][c] > weights[best.row][best.column]) best = { row: r, column: c };
    }
  }
  return best;
}

/** How many words the first `count` rows of pieces begin. */
export const wordsBegun = (words, count) => startsOf(words.rows).slice(0, -1).filter((start) => start < count).length;

/** A view by word, or the view itself if its tokens are no subwords. */
export function viewByWord(view) {
  const { words } = view;
  if (!words) return view;
  const [rowOf, columnOf] = [wordOfPiece(words.rows), wordOfPiece(words.columns)];
  const steps = view.block !== "encoder";
  const cells = new Map(view.goldCells.map(([row, column]) => [rowOf[row] + " " + columnOf[column], [rowOf[row], columnOf[column]]]));
  return {
    ...view,
    byWord: true,
    rows: words.rows.map(({ name }, word) => (steps ? { produced: name, read: word ? words.rows[word - 1].name : view.rows[0].read } : { token: name })),
    columns: words.columns.map(({ name }) => name),
    goldCells: [...cells.values()],
    heads: view.heads.map((head) => ({ ...head, weights: sumByWord(head.weights, words) })),
    row: view.row === null ? null : rowOf[view.row],
    cell: view.cell && { row: rowOf[view.cell.row], column: columnOf[view.cell.column] },
    reserve: null,
    axes: view.axes.replace(/tokens?/g, (text) => (text === "token" ? "word" : "words")).replace("decoding steps", "output words") + "; by word",
    caption: view.caption + " By word: the weights on the pieces of a word are added, those of the steps that wrote a word averaged; "
      + "a cell opens its strongest piece.",
  };
}
