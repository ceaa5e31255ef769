// Mounts the page's components without Gradio: each is a folder of ui/components with a template, a style and a script.

import { importModule } from "./modules.js";

/**
 * Mount a component in the element of an id, which has its template. Returns { set(props), on(event, listener) }.
 */
export async function mountComponent(name, id, { server = {}, value = null, ...more } = {}) {
  const element = document.getElementById(id);
  const props = { value, ...more };
  const watchers = [];
  const listeners = new Map();
  const { mount } = await importModule("components/" + name + "/" + name + ".js");
  mount({
    element, props, server,
    trigger: (event, detail) => listeners.get(event)?.(detail),
    watch: (names, listener) => watchers.push({ names: [names].flat(), listener }),
  });
  return {
    get value() {
      return props.value;
    },
    set(changes) {
      Object.assign(props, changes);
      for (const { names, listener } of watchers) if (names.some((each) => each in changes)) listener();
    },
    on(event, listener) {
      listeners.set(event, listener);
    },
  };
}
