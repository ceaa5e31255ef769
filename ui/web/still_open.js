// Reports to the server that the page is open. It keeps no connection open, because a browser has only six per host.

import { callServer } from "./server.js";

const EVERY_MS = 30_000; // browsers slow it down to once a minute while the page is hidden

/** Call the server function `still_open` regularly, so that the visitor's runs and session continue. */
export function reportStillOpen(server) {
  setInterval(() => callServer(server, "still_open", {}), EVERY_MS);
}
