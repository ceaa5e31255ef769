// Calls of the functions that stand in for a server, in a worker or in this page.

let port = null;
let number = 0;
const waiting = new Map();

/** Start the worker of a script, and say what is wrong with `onFailure(text)` if it cannot run. */
export function startWorker(script, onFailure) {
  const worker = new Worker(script, { type: "module" });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    onFailure("The part of this page that runs the models could not start (" + (event.message || "its script was not loaded") + "). Reload the page.");
  });
  connect(worker);
}

/** Run the functions in this page: browsers start no workers in a page that was opened from a disk. */
export function startHere({ serve }) {
  const channel = new MessageChannel();
  serve(channel.port2);
  connect(channel.port1);
  channel.port1.start();
}

function connect(to) {
  port = to;
  port.addEventListener("message", ({ data: { id, answer, progress } }) => {
    const call = waiting.get(id);
    if (!call) return;
    if (answer === undefined) return call.report(progress);
    waiting.delete(id);
    call.resolve(answer);
  });
}

/** Call a function; its answer has `error` if it failed. */
export function call(name, argument = {}, report = () => {}) {
  return new Promise((resolve) => {
    number += 1;
    waiting.set(number, { resolve, report });
    port.postMessage({ id: number, name, argument });
  });
}

/** What a component takes for its server. */
export const server = new Proxy({}, { get: (_, name) => (argument) => call(name, argument) });
