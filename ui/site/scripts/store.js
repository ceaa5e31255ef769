// Runs in this browser's storage (IndexedDB): what is known about them, and their weights apart, which are large.

const NAME = "attention-lab";
const [RUNS, WEIGHTS] = ["runs", "weights"];

function request(operation) {
  return new Promise((resolve, reject) => {
    operation.onsuccess = () => resolve(operation.result);
    operation.onerror = () => reject(operation.error);
  });
}

let opened = null;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => [RUNS, WEIGHTS].forEach((name) => opening.result.createObjectStore(name));
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  opened.catch(() => (opened = null));
  return opened;
}

/** Write a run, its facts and its weights or neither. */
export async function saveRun({ best, saved, kept, isLoaded, ...facts }) {
  const transaction = (await open()).transaction([RUNS, WEIGHTS], "readwrite");
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  transaction.objectStore(RUNS).put(facts, facts.id);
  if (best || saved) transaction.objectStore(WEIGHTS).put({ best, saved }, facts.id);
  await done;
}

/** All runs without their weights, the oldest first. */
export async function loadRuns() {
  const found = await request((await open()).transaction(RUNS).objectStore(RUNS).getAll());
  return found.sort((a, b) => a.created - b.created);
}

/** A run without its weights; undefined if it is not stored. */
export async function loadRun(id) {
  return request((await open()).transaction(RUNS).objectStore(RUNS).get(id));
}

/** { best, saved } of a run; {} without any, or in a browser that keeps nothing. */
export async function loadWeights(id) {
  try {
    return (await request((await open()).transaction(WEIGHTS).objectStore(WEIGHTS).get(id))) ?? {};
  } catch {
    return {};
  }
}

export async function removeRun(id) {
  const transaction = (await open()).transaction([RUNS, WEIGHTS], "readwrite");
  await Promise.all([RUNS, WEIGHTS].map((name) => request(transaction.objectStore(name).delete(id))));
}
