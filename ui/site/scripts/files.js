// Reads the site's files, which are compressed because many hosts do not compress; or those inside a single page.

import { Problem } from "./problem.js";

let embedded = null; // { name: base64 } in a page that is one file

/** Read files from here on out of a page that holds all of them. */
export function useEmbedded(files) {
  embedded = files;
}

/** The bytes of a file of the site, such as "labs/tiny/train.bin". `onProgress(bytes)` is called while it loads. */
export async function readBytes(name, onProgress = () => {}) {
  const compressed = embedded ? fromBase64(embedded[name]) : await download(name, onProgress);
  try {
    const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Problem("The file “" + name + "” arrived damaged. Reload the page to download it again.");
  }
}

/** A JSON file of the site. */
export async function readJson(name) {
  return JSON.parse(new TextDecoder().decode(await readBytes(name)));
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function download(name, onProgress) {
  let response;
  try {
    response = await fetch(new URL("../" + name + ".gz", import.meta.url));
  } catch {
    throw new Problem("The file “" + name + "” could not be downloaded: no connection. Reload the page to try again.");
  }
  if (!response.ok) throw new Problem("The file “" + name + "” is missing from this site (HTTP " + response.status + ").");
  const chunks = [];
  let received = 0;
  try {
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      received += value.length;
      onProgress(received);
    }
  } catch {
    throw new Problem("The download of “" + name + "” was interrupted. Reload the page to try again.");
  }
  return new Blob(chunks);
}
