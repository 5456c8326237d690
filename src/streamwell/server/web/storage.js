// What the browser keeps for this page, for a tab or for good. One that keeps nothing will do.

function shelf(open) {
  const attempt = (action, otherwise) => {
    try {
      return action(open());
    } catch { // it is blocked, or full
      return otherwise;
    }
  };
  return {
    get: (name) => attempt((kept) => kept.getItem(name), null),
    names: () => attempt((kept) => Object.keys(kept), []),
    /** Where there is no room nothing is kept: what was there is older. */
    put(name, text) {
      attempt((kept) => kept.removeItem(name));
      if (text) attempt((kept) => kept.setItem(name, text));
    },
  };
}

export const inTab = shelf(() => sessionStorage);
export const forGood = shelf(() => localStorage);
