// The live figures by kind. Each is made with { box, options, lesson, request } and returns { show(input) }.

import { causalFigure } from "./causal.js";
import { headsFigure } from "./heads.js";
import { mapFigure } from "./map.js";
import { ordersFigure } from "./orders.js";
import { paddingFigure } from "./padding.js";
import { readingFigure } from "./reading.js";
import { rowFigure } from "./row.js";
import { similarityFigure } from "./similarity.js";
import { textFigure } from "./text.js";
import { tokensFigure } from "./tokens.js";
import { trainingFigure } from "./training.js";

export const FIGURES = {
  causal: causalFigure,
  heads: headsFigure,
  map: mapFigure,
  orders: ordersFigure,
  padding: paddingFigure,
  reading: readingFigure,
  row: rowFigure,
  similarity: similarityFigure,
  text: textFigure,
  tokens: tokensFigure,
  training: trainingFigure,
};
