// The meaning of the labels under a head's map; core/interpret/health.py defines them with their thresholds.

export const MARKS = {
  dead: "Dead: its output is less than 2 % of its attention layer's",
  collapsed: "Collapsed: more than 98 % of its attention is on one token of each input, whatever the query",
  uniform: "Uniform: its entropy is more than 95 % of that of uniform attention",
};
