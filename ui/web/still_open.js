// Reports to the server that the page is open. No connection lasts as long as the page: a browser has only six to a host.

import { callServer } from "./server.js";

const EVERY_MS = 30_000; // browsers slow it down to once a minute while the page is hidden

/** Call the server function `still_open` from time to time: its visitor's runs keep training, and its session stays. */
export function reportStillOpen(server) {
  setInterval(() => callServer(server, "still_open", {}), EVERY_MS);
}
