// Which tab of this browser trains a run or changes it: the tab holds a lock with the run's name (Web Locks). The browser
// releases it when the tab is closed. A browser that has no locks lets every tab hold every run.

const PREFIX = "attention-lab-run-";
const here = new Map(); // run → how this tab releases it

export const isHeldHere = (run) => here.has(run);

/** Hold a run in this tab; whether it is held, which it is not while another tab holds it. */
export function hold(run) {
  if (here.has(run)) return Promise.resolve(false);
  here.set(run, () => {});
  return new Promise((resolve) => {
    const heldUntilReleased = (lock) => {
      if (!lock) here.delete(run);
      resolve(Boolean(lock));
      return lock && new Promise((release) => here.set(run, release));
    };
    const asked = navigator.locks?.request(PREFIX + run, { ifAvailable: true }, heldUntilReleased) ?? Promise.reject();
    asked.catch(() => resolve(true)); // without locks
  });
}

export function release(run) {
  here.get(run)?.();
  here.delete(run);
}

/** Whether another tab holds a run. */
export async function isHeldElsewhere(run) {
  if (here.has(run)) return false;
  const { held } = (await navigator.locks?.query().catch(() => null)) ?? { held: [] };
  return held.some(({ name }) => name === PREFIX + run);
}
