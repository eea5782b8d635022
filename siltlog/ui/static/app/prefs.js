/** What a person chose for this browser: theme, and times in local time or UTC. */
import { store } from "./store.js";

const PREFIX = "siltlog.";

/** @param {string} name @param {string} otherwise */
function kept(name, otherwise) {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {string} value */
function keep(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // Without storage the choice holds until the page is closed.
  }
}

/** `system`, `light` or `dark`. */
export const theme = store(kept("theme", "system"));
/** `local` or `utc`. */
export const zone = store(kept("zone", "local"));

theme.follow((chosen) => {
  keep("theme", chosen);
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
});
zone.follow((chosen) => keep("zone", chosen));

const QUERIES_MAX = 20;

/** @param {string} text */
function listed(text) {
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

/** The queries that were asked last, the newest first. */
export const queries = store(/** @type {string[]} */ (listed(kept("queries", "[]"))));
queries.follow((asked) => keep("queries", JSON.stringify(asked)));

/** @param {string} query */
export function keepQuery(query) {
  queries.set([query, ...queries.get().filter((each) => each !== query)].slice(0, QUERIES_MAX));
}
