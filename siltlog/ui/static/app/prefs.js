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
