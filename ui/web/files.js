// Downloads.

import { make } from "./dom.js";

/** Download a blob as a file. */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const [START, END] = [120, 79]; // characters of a long name that are kept; file systems take 255

/** A file name of letters, digits and dashes; of a long text without its middle. */
export function fileName(text, extension) {
  const stem = String(text).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  const short = stem.length <= START + 1 + END ? stem : stem.slice(0, START) + "-" + stem.slice(-END);
  return (short || "attention-lab") + "." + extension;
}

/** One CSV cell. Text that starts with = + - @ is quoted, because spreadsheets run it as a formula. */
function csvCell(value) {
  if (value == null) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  const safe = /^[\s]*[=+\-@\t\r]/.test(text) && !isNumber ? "'" + text : text;
  return '"' + safe.replaceAll('"', '""') + '"';
}

/** Download rows as a CSV file, with the byte-order mark that Excel needs for non-ASCII text. */
export function downloadCsv(rows, name) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  download(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }), name);
}
