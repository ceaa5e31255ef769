// Calls of a component's server functions.

/** Call a server function; null without an answer (no connection, error, or timeout). */
export async function callServer(server, name, argument, seconds = 10) {
  const timeout = new Promise((resolve) => setTimeout(resolve, seconds * 1000, null));
  try {
    return (await Promise.race([server[name](argument), timeout])) ?? null;
  } catch {
    return null;
  }
}

/** The JSON at an address of the server; null without an answer. */
export async function fetchJson(address) {
  try {
    return await (await fetch(new URL(address, document.baseURI))).json();
  } catch {
    return null;
  }
}

/**
 * Call `poll` repeatedly while the component is on the page and visible. `poll` returns the
 * milliseconds until the next call. Returns a function that polls immediately.
 */
export function pollWhileVisible(element, poll) {
  const whileHidden = 300;
  let timer = 0;
  let round = 0; // a response of an earlier round must not start a second chain of timers
  async function turn(mine) {
    if (!element.isConnected) return;
    const isVisible = document.visibilityState === "visible" && element.offsetParent !== null;
    const wait = isVisible ? await poll() : whileHidden;
    if (mine === round) timer = setTimeout(turn, wait, mine);
  }
  function now() {
    clearTimeout(timer);
    round += 1;
    timer = setTimeout(turn, 0, round);
  }
  now();
  return now;
}
