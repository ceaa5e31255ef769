// Maps as the server packs them, { shape: [layers, heads, rows, columns], bytes, data }, made into what is drawn.
//
// "Told" is what the server tells of one decode, of the visitor's input or of a fixed one at a training step:
//   source, tokens     what was read, BOS and EOS included, and what was written, EOS included
//   expected, marked   the right answer or null, and the [step, column] cells where it comes from
//   blocks, maps       the kinds of attention in words, and their packed maps
//   scored             the block that is scored; scored_on: on what, in words
//   attention_mass     on the gold alignment, by layer and head
//   uniform_mass       the attention mass of uniform attention

/** All heads of a kind: [{ layer, head, weights[row][column] }], layers and heads numbered from 1. */
function headsOf(packed) {
  return (packed.heads ??= unpackHeads(packed));
}

function unpackHeads({ shape, bytes, data }) {
  const [layers, heads, rows, columns] = shape;
  const raw = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const full = 256 ** bytes - 1;
  const weight = (at) => Math.round((10000 * (bytes === 2 ? raw[2 * at] + 256 * raw[2 * at + 1] : raw[at])) / full) / 10000;
  const found = [];
  for (let place = 0; place < layers * heads; place += 1) {
    const first = place * rows * columns;
    found.push({
      layer: Math.floor(place / heads) + 1,
      head: (place % heads) + 1,
      weights: Array.from({ length: rows }, (_, row) =>
        Array.from({ length: columns }, (_, column) => weight(first + row * columns + column))),
    });
  }
  return found;
}

/** What each step had read before it produced its token. */
const readBy = (told) => [told.source[0], ...told.tokens.slice(0, -1)];

/** One kind of attention of a decode, ready to be drawn: rows, columns, marked cells, heads with their scores. */
function viewOf(told, block) {
  const facts = told.blocks.find((each) => each.block === block);
  const read = readBy(told);
  const written = told.tokens.map((produced, step) => ({ produced, read: read[step] }));
  const scored = told.scored === block;
  return {
    ...facts,
    layers: told.maps[block].shape[0],
    rows: block === "encoder" ? told.source.map((token) => ({ token })) : written,
    columns: { source: told.source, read, "source and read": [...told.source, ...read] }[facts.columns],
    marked: scored ? told.marked.filter(([step]) => step < told.tokens.length) : [],
    uniformMass: scored ? told.uniform_mass : null,
    scoredOn: told.scored_on,
    heads: headsOf(told.maps[block]).map((each) => {
      const score = scored ? told.attention_mass?.[each.layer - 1]?.[each.head - 1] ?? null : null;
      return { ...each, score, label: score === null ? "" : score.toFixed(2) };
    }),
  };
}

/** The head that looks best at the true tokens, of the last layer or of one; without scores the first. */
function bestHead(view, layer = view.layers) {
  const heads = view.heads.filter((each) => each.layer === layer);
  return heads.reduce((best, each) => (each.score > best.score ? each : best));
}
