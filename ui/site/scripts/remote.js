// Calls of the worker, as if they were calls of a server's functions.

let worker = null;
let number = 0;
const waiting = new Map();

/** Start the worker of a script, and say what is wrong with `onFailure(text)` if it cannot run. */
export function startWorker(script, onFailure) {
  worker = new Worker(script, { type: "module" });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    onFailure("The part of this page that runs the models could not start (" + (event.message || "its script was not loaded") + "). Reload the page.");
  });
  worker.addEventListener("message", ({ data: { id, answer, progress } }) => {
    const call = waiting.get(id);
    if (!call) return;
    if (answer === undefined) return call.report(progress);
    waiting.delete(id);
    call.resolve(answer);
  });
}

/** Call a function of the worker; its answer has `error` if it failed. */
export function call(name, argument = {}, report = () => {}) {
  return new Promise((resolve) => {
    number += 1;
    waiting.set(number, { resolve, report });
    worker.postMessage({ id: number, name, argument });
  });
}

/** What a component takes for its server. */
export const server = new Proxy({}, { get: (_, name) => (argument) => call(name, argument) });
