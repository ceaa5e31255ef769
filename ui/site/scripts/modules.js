// Imports a script of the site by its path, also in a page that holds all scripts itself.

/** The module at a path below the site, such as "components/bench/bench.js". */
export function importModule(path) {
  return import(globalThis.labModules?.[path] ?? new URL("../" + path, import.meta.url).href);
}
