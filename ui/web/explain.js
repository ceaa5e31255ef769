// Explains the words of the glossary, which is loaded when one may be pointed at.

const LONGEST_TERM = 30; // characters of a word of the glossary

/** Explain the word that is pointed at or focused, if the glossary has its `data-term`, or the whole text of an element. */
async function explain({ target }) {
  const word = target.closest?.("[data-term]") ?? (target.title || target.textContent.length > LONGEST_TERM ? null : target);
  const text = word && (await import("./glossary.js")).explanationOf(word.dataset.term || word.textContent);
  if (text) word.title = text;
}

/** Explain the words of a document: the page's, or that of a frame. */
export function explainWordsOf(page) {
  page.addEventListener("pointerover", explain);
  page.addEventListener("focusin", explain);
}
