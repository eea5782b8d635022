/** Who looks at the page: what `whoami` says, the login over the page, the logout. */
import { ROOT, Problem, caller, call, get } from "./api.js";
import { allowed } from "./rights.js";
import { store, useStore } from "./store.js";

/** What `whoami` answered; null before it did. */
export const who = store(/** @type {any} */ (null));
/** Whether the login is asked for, over whatever is shown. */
export const asking = store(false);
/** What can be logged in with, once it was asked for. */
export const ways = store(/** @type {any} */ (null));

/** @type {((entered: boolean) => void)[]} */
let waiting = [];

/** Asks who the caller is; where nobody is logged in this asks for the login. */
export async function begin() {
  caller.unauthenticated = loginThen;
  await refresh();
}

async function refresh() {
  const said = await get(["v1", "access", "whoami"]);
  caller.csrf = said.csrf ?? "";
  who.set(said);
}

/** @param {() => Promise<Response>} again */
async function loginThen(again) {
  const entered = await new Promise((resolve) => {
    waiting.push(resolve);
    if (!asking.get()) {
      asking.set(true);
      void findWays();
    }
  });
  return entered ? again() : null;
}

async function findWays() {
  const response = await fetch(new URL("ui/login", ROOT), { credentials: "same-origin" });
  ways.set(response.ok ? await response.json() : { methods: [] });
}

/** Logs in with an API key; raises Problem. @param {string} key */
export async function login(key) {
  const response = await fetch(new URL("ui/login", ROOT), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    credentials: "same-origin",
    body: JSON.stringify({ key }),
  });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  asking.set(false);
  await refresh();
  answer(true);
}

/** Leaves without a login: what waited for it fails as it was refused. */
export function giveUp() {
  asking.set(false);
  answer(false);
}

/** @param {boolean} entered */
function answer(entered) {
  const all = waiting;
  waiting = [];
  for (const resolve of all) resolve(entered);
}

export async function logout() {
  await call("POST", ["ui", "logout"]);
  location.reload();
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
