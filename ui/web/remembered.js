// What the browser remembers, for later visits or until its tab is closed. Where it keeps nothing, because the visitor
// has blocked cookies or there is no room left, this page remembers it until it is left.

function memory(storage) {
  const here = new Map(); // what the browser did not take
  const attempt = (action) => {
    try {
      return action(window[storage]);
    } catch {
      return null;
    }
  };
  const remove = (key) => {
    here.delete(key);
    attempt((kept) => kept.removeItem(key));
  };
  return {
    /** A text; null if there is none. */
    get: (key) => here.get(key) ?? attempt((kept) => kept.getItem(key)),
    /** Remember a text; whether the browser does. */
    set(key, text) {
      remove(key); // of a text that is too long, not even an earlier one is left
      const isKept = attempt((kept) => kept.setItem(key, text)) === undefined;
      if (!isKept) here.set(key, String(text));
      return isKept;
    },
    remove,
    removeAll(prefix) {
      for (const key of [...here.keys(), ...(attempt(Object.keys) ?? [])]) if (key.startsWith(prefix)) remove(key);
    },
  };
}

export const inBrowser = memory("localStorage");
export const inTab = memory("sessionStorage");
