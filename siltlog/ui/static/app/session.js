/** Who looks at the page: what `whoami` says, his login and its end, in all tabs of a browser. */
import { Problem, ROOT, ask, asking, call, get, loggedIn } from "./api.js";
import { lacking, notAdmin, setOnlyShows } from "./rights.js";
import { store, useStore } from "./store.js";

/** While somebody looks at it the page asks who he is so often: an hour without a request ends his session. */
const SEEN_MS = 240_000;
/** A login by a provider lasts an hour from what it said of groups: it is asked again in time. */
const RENEW_MS = 2_400_000;
const WHO = ["v1", "access", "whoami"];

/** What `whoami` answered; null before it did, and where nobody is logged in. */
export const who = store(/** @type {any} */ (null));

const NAME = `siltlog.session ${ROOT.href}`;
const channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;

/** Asks who the caller is, and goes on asking. */
export async function begin() {
  if (channel !== null) channel.onmessage = ({ data }) => heard(data);
  setInterval(() => document.hidden || who.get()?.by !== "session" || void lookAgain(), SEEN_MS);
  await look();
  // A login by a provider is in a tab of its own: the others hear of it by its page.
  if (who.get()?.by === "session") channel?.postMessage("came");
}

async function lookAgain() {
  await look();
  const caller = who.get();
  if (!caller?.principal.startsWith("user:") || Date.parse(caller.expires_at) - Date.now() > RENEW_MS) return;
  const renew = () => call("POST", ["ui", "login", "renew"], { asks: false }).then(look, () => {});
  // A refresh token may count once, and all tabs have the same.
  if ("locks" in navigator) await navigator.locks.request(`${NAME} renew`, { ifAvailable: true }, (lock) => lock && renew());
  else await renew();
}

async function look() {
  try {
    told(await get(WHO));
  } catch {
    // What else is asked for says why.
  }
}

/** @param {any} answer what `whoami` said */
function told(answer) {
  setOnlyShows(answer.page === "read");
  who.set(answer);
}

/** Logs in with a key; throws the problem where that is refused. @param {string} key */
export async function logIn(key) {
  await call("POST", ["ui", "login"], { body: { key }, asks: false });
  channel?.postMessage("came");
  await came();
}

/** Ends the session, in all tabs. */
export async function logOut() {
  await call("POST", ["ui", "logout"], { asks: false });
  channel?.postMessage("left");
  left();
}

/** Opens the login where nobody is logged in. */
export function askForLogin() {
  ask(new Problem(401, { detail: "This server asks who calls." }));
}

/** @param {string} said by another tab */
function heard(said) {
  if (said === "left") left();
  else if (said === "came") came().catch(() => {});
}

/** Somebody has logged in, here or in another tab. */
async function came() {
  const before = who.get();
  const now = await get(WHO, {}, { asks: false });
  if (before !== null && before.principal !== now.principal) {
    // What is shown, and what was to be done, is another's.
    location.reload();
    return;
  }
  const wanted = before === null || asking.get() !== null;
  told(now);
  if (wanted) loggedIn();
}

/** What is shown goes too: the next to look may be somebody else. */
function left() {
  location.reload();
}

/** Says why the one who looks may not do something, empty where he may; draws again when that changes. */
export function useLacks() {
  const caller = useStore(who);
  return (
    /** @type {string} */ operation,
    /** @type {"topic"|"group"|"cluster"} */ kind,
    /** @type {string} */ name = "",
  ) => lacking(caller, operation, kind, name);
}

/** Says why the one who looks may not administer; empty where he may. */
export function useNotAdmin() {
  return notAdmin(useStore(who));
}
