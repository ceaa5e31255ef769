"""What is wrong with the page's layout at a size: texts that are cut off, covered, or outside their card."""

from collections.abc import Iterable

from playwright.sync_api import Page

from tests.browser.chromium import TWO_FRAMES

# The faults of all visible texts, as sentences. Scrolls through the page, and back.
_FAULTS = r"""() => {
  const faults = new Set();
  const root = document.documentElement;
  const start = scrollY;
  const within = (node, test) => {
    for (; node && node !== root; node = node.parentElement) if (test(node)) return node;
    return null;
  };
  const style = new Map();
  const of = (node) => style.get(node) ?? style.set(node, getComputedStyle(node)).get(node);
  const scrolls = (node) => /auto|scroll/.test(of(node).overflowX) && node.scrollWidth > node.clientWidth
    || /auto|scroll/.test(of(node).overflowY) && node.scrollHeight > node.clientHeight;
  const isShortened = (node) => of(node).textOverflow === "ellipsis" && within(node, (each) => each.title);
  const add = (kind, node, text) => {
    const path = [];
    within(node, (each) => {
      const isNamed = each.id && !each.id.startsWith("html-"); // Gradio's own ids are random
      path.unshift(isNamed ? "#" + each.id : [each.localName, each.classList[0]].filter(Boolean).join("."));
      return path.length > 4;
    });
    faults.add(kind + ": " + path.join(" ") + ' "' + text.trim().replace(/\s+/g, " ").slice(0, 40) + '"');
  };

  // Visible texts: [element, text, range]
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement: node, textContent: text } = walker.currentNode;
    if (!text.trim() || node.closest("option, script, style, textarea, svg, iframe, footer")) continue;
    if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (within(node, (each) => of(each).clipPath !== "none")) continue; // for screen readers
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    texts.push([node, text, range]);
  }

  // Inside their cards, and not cut off; texts of a box that scrolls can be scrolled to
  for (const [node, text, range] of texts) {
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    let inner = null;
    for (let each = node; each && each !== document.body; each = each.parentElement) {
      if (scrolls(each)) break;
      const { left, right, top, bottom } = each.getBoundingClientRect();
      const hides = /hidden|clip/.test(of(each).overflowX + of(each).overflowY) && !each.matches(".gradio-container");
      const frames = parseFloat(of(each).borderRightWidth) > 0 && parseFloat(of(each).borderLeftWidth) > 0;
      if (hides && isShortened(each)) { inner = each; break; }
      const isOut = box.left < left - 2 || box.right > right + 2;
      const isTall = box.bottom > bottom + 3 || box.top < top - 3;
      if (hides && (isOut || isTall)) add("cut off", node, text);
      else if (frames && isOut) add("out of its card", node, text);
      if (of(each).position === "absolute" || of(each).position === "fixed") break;
    }
    const isInScroller = within(node, scrolls);
    if (!isInScroller && !inner && (box.left < -1 || box.right > innerWidth + 1)) add("out of the page", node, text);
  }
  if (root.scrollWidth > innerWidth) faults.add("the page scrolls sideways by " + (root.scrollWidth - innerWidth));

  // Not covered by anything but what stays while the rest scrolls
  const staysOf = (node) => within(node, (each) => /sticky|fixed/.test(of(each).position));
  const bars = 96;
  for (let y = 0; ; y += innerHeight - 2 * bars) {
    scrollTo({ top: y, behavior: "instant" });
    for (const [node, text, range] of texts) {
      const box = range.getClientRects()[0];
      if (!box || box.top < 0 || box.bottom > innerHeight || box.left < 0 || box.right > innerWidth) continue;
      const right = isShortened(node) ? Math.min(box.right, node.getBoundingClientRect().right) : box.right;
      const hit = document.elementFromPoint((box.left + right) / 2, (box.top + box.bottom) / 2);
      if (!hit || hit.contains(node) || node.contains(hit) || of(node).pointerEvents === "none") continue;
      const over = staysOf(hit);
      if (over && !over.contains(node)) continue;
      if (within(node, (each) => scrolls(each) && !each.contains(hit))) continue; // scrolled out of its box
      if (hit.matches("input") && hit.closest("label")?.contains(node)) continue;
      add("covered by " + hit.localName + "." + String(hit.className).split(" ")[0], node, text);
    }
    if (y + innerHeight >= root.scrollHeight) break;
  }
  scrollTo({ top: start, behavior: "instant" });
  return [...faults];
}"""
_SET_THEME = "(dark) => document.body.classList.toggle('dark', dark)"


def faults_at(page: Page, sizes: Iterable[tuple[int, int]]) -> dict[str, list[str]]:
    """Return the faults at each size, by fault: the sizes that have it. Every second size is dark."""
    found: dict[str, list[str]] = {}
    for at, (width, height) in enumerate(sizes):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(_SET_THEME, at % 2 == 1)
        page.evaluate(TWO_FRAMES)
        for fault in page.evaluate(_FAULTS):
            found.setdefault(fault, []).append(f"{width} x {height}")
    page.evaluate(_SET_THEME, False)
    return found
