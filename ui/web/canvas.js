// Canvases: size, theme colors and redrawing.

import { make } from "./dom.js";
/** The theme's colors and font for a canvas; read before each drawing, because the theme can change. */
export function themeColors() {
  const sample = make("span", { hidden: true });
  document.body.append(sample);
  const read = (name) => {
    sample.style.color = "var(" + name + ")";
    return getComputedStyle(sample).color;
  };
  const colors = {
    font: getComputedStyle(document.body).fontFamily,
    text: read("--body-text-color"),
    muted: read("--muted"),
    line: read("--border-color-primary"),
    background: read("--background-fill-primary"),
    accent: read("--color-accent"),
  };
  sample.remove();
  return colors;
}

/** Set a canvas's size in CSS pixels at the screen's resolution; returns its cleared context. */
export function prepareCanvas(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}

/** A function that draws in the next frame, once for any number of calls; at once for paper, which has no next frame. */
export function inNextFrame(draw) {
  let pending = 0;
  return () => {
    if (document.body.dataset.printing) return draw();
    pending ||= requestAnimationFrame(() => {
      pending = 0;
      draw();
    });
  };
}

/** Call `redraw` when the component's width or the theme changes. */
export function onAppearanceChange(element, redraw) {
  const size = new ResizeObserver(redraw);
  const theme = new MutationObserver(() => {
    if (element.isConnected) return redraw();
    theme.disconnect(); // the component was removed
    size.disconnect();
  });
  size.observe(element);
  theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
}

/** Shorten a text with an ellipsis until it fits the width. */
export function fitText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let letters = [...text].slice(0, 80);
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
}
