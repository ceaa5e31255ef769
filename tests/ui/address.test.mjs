import assert from "node:assert/strict";
import test from "node:test";

/** The addresses of a page as a browser gives them; `origin` of a file is "null" in Firefox, "file://" in Chromium. */
async function addressesOf(href, origin) {
  const { pathname, search } = new URL(href);
  globalThis.window = { location: { href, origin, pathname, search } };
  return import("../../ui/web/address.js?" + encodeURIComponent(href + origin));
}

test("a link to the view of a page opened from a disk leads to its file in every browser", async () => {
  for (const origin of ["null", "file://"]) {
    const { linkToTab, parametersOfLink } = await addressesOf("file:///home/me/run.html?tab=decode&lesson=tokens#top", origin);
    assert.equal(linkToTab(), "file:///home/me/run.html?tab=decode");
    assert.deepEqual(parametersOfLink(linkToTab()), { tab: "decode" });
    assert.equal(parametersOfLink("file:///home/me/other.html?tab=decode"), null);
  }
});

test("a link to a page of a server keeps its folder", async () => {
  const { linkToTab, parametersOfLink } = await addressesOf("https://school.example/lab/?run=tiny&__theme=dark", "https://school.example");
  assert.equal(linkToTab(), "https://school.example/lab/?run=tiny");
  assert.deepEqual(parametersOfLink("https://school.example/lab/?run=tiny#top"), { run: "tiny" });
  assert.equal(parametersOfLink("https://other.example/lab/?run=tiny"), null);
});
