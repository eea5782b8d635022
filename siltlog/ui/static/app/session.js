/** Who looks at the page: what `whoami` says. */
import { get } from "./api.js";
import { allowed } from "./rights.js";
import { store, useStore } from "./store.js";

/** What `whoami` answered; null before it did. */
export const who = store(/** @type {any} */ (null));
/** Why the server did not answer that; null where it did. */
export const refused = store(/** @type {any} */ (null));

/** Asks who the caller is. */
export async function begin() {
  try {
    who.set(await get(["v1", "access", "whoami"]));
  } catch (problem) {
    refused.set(/** @type {any} */ (problem).status === 401 ? problem : null);
  }
}

/** Tells whether the one who looks may do something; draws again when that changes. */
export function useMay() {
  const caller = useStore(who);
  return (
    /** @type {string} */ operation,
    /** @type {"topic"|"group"|"cluster"} */ kind,
    /** @type {string} */ name = "",
  ) => allowed(caller, operation, kind, name);
}
