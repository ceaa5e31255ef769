// Starts a page that is one file: its scripts become modules of their own, which also work in a page opened from a disk.
// It is a classic script, because browsers load no modules of files from a disk.

{
  const scripts = JSON.parse(document.getElementById("scripts").textContent); // path → source, those it imports first
  const modules = {};
  const resolved = (from, to) => new URL(to, "https://site/" + from).pathname.slice(1);
  for (const [path, source] of Object.entries(scripts)) {
    const withAddresses = source.replace(/((?:^|\n)(?:import|export) [^;]*?from |(?:^|\n)import |\bimport\()"(\.[^"]+)"/g,
      (_, before, to) => before + '"' + modules[resolved(path, to)] + '"');
    modules[path] = URL.createObjectURL(new Blob([withAddresses], { type: "text/javascript" }));
  }
  globalThis.labModules = modules;
  const embedded = JSON.parse(document.getElementById("files").textContent);
  Promise.all(["site/site.js", "site/functions.js"].map((path) => import(modules[path])))
    .then(([{ openPage }, functions]) => openPage({ embedded, functions }));
}
