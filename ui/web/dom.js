// Elements: find, make and change them. Tokens and run names come from visitors: they are shown only as text nodes
// and attributes.

/** A function that finds the first element with a class inside a component. */
export const partsOf = (element) => (name) => element.querySelector("." + name);

/** Make an element; string children become text, `on…` attributes become listeners. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") node.style.cssText = value; // a strict Content-Security-Policy forbids the attribute
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Set a text only if it differs, so that nothing flickers and screen readers announce it once. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that is unique on the page, for radio groups and ids. */
export function uniqueName(prefix) {
  return prefix + "-" + Math.random().toString(36).slice(2, 10);
}
