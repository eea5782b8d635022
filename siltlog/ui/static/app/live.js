/**
 * Snapshots of what goes on, each second, shared by all tabs of a browser.
 *
 * HTTP/1.1 gives a browser six connections to a server, and a stream holds one of them. So one tab holds the stream (a Web
 * Lock says which) and tells the others (BroadcastChannel). A hidden tab wants nothing, and lets the stream go. Where
 * there are no locks (plain http to another machine), or the server has too many viewers, the page polls.
 */
import { ROOT, address, get, logins } from "./api.js";
import { useEffect } from "./dom.js";
import { polled } from "./polled.js";
import { store, useStore } from "./store.js";

/** @typedef {"overview"|"topics"|"groups"|"jobs"} Kind */

const NAME = `siltlog.live ${ROOT.href}`;
const POLL_MS = 10_000;
const SAY_MS = 3_000;
const FORGET_MS = 10_000;
/** @type {Kind[]} */
const KINDS = ["overview", "topics", "groups", "jobs"];

/** The newest snapshot of each kind, null before there is one. @type {Record<Kind, ReturnType<typeof store<any>>>} */
const newest = /** @type {any} */ (Object.fromEntries(KINDS.map((kind) => [kind, store(null)])));
/** How snapshots come: `starting`, `live`, `polling` or `lost`. */
export const state = store("starting");

/** How many components of this tab want a kind. @type {Map<Kind, number>} */
const wanted = new Map();
/** What other tabs want, and until when that holds. @type {Map<string, { kinds: Kind[], until: number }>} */
const others = new Map();
const id = Math.random().toString(36).slice(2);
const channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;

/** @type {EventSource | null} */
let stream = null;
let streamed = "";
let leading = false;
let begun = false;
/** @type {(() => void) | null} */
let release = null;
/** @type {number | undefined} */
let polling;

/** Gives the newest snapshot of a kind, null before there is one. @param {Kind} kind */
export function useLive(kind) {
  useEffect(() => {
    wanted.set(kind, (wanted.get(kind) ?? 0) + 1);
    start();
    settle();
    return () => {
      wanted.set(kind, (wanted.get(kind) ?? 1) - 1);
      settle();
    };
  }, [kind]);
  return useStore(newest[kind]);
}

/** @returns {Kind[]} */
function ownKinds() {
  return document.hidden ? [] : KINDS.filter((kind) => (wanted.get(kind) ?? 0) > 0);
}

function allKinds() {
  const now = performance.now();
  for (const [tab, said] of others) if (said.until < now) others.delete(tab);
  const said = [...others.values()].flatMap((each) => each.kinds);
  return KINDS.filter((kind) => ownKinds().includes(kind) || said.includes(kind));
}

function start() {
  if (begun) return;
  begun = true;
  if (channel !== null) channel.onmessage = ({ data }) => heard(data);
  document.addEventListener("visibilitychange", settle);
  logins.follow(beginAgain);
  addEventListener("pagehide", () => channel?.postMessage({ tab: id, kinds: [] }));
  setInterval(settle, SAY_MS);
}

/** @param {any} said */
function heard(said) {
  if (said.kinds) {
    others.set(said.tab, { kinds: said.kinds, until: performance.now() + FORGET_MS });
    if (leading) settle();
  } else if (said.kind && !leading) {
    newest[/** @type {Kind} */ (said.kind)].set(said.snapshot);
    state.set(said.state);
  } else if (said.state && !leading) state.set(said.state);
}

/** Brings what is streamed in line with what is wanted. */
function settle() {
  const own = ownKinds();
  channel?.postMessage({ tab: id, kinds: own });
  if (own.length === 0) {
    release?.();
    return;
  }
  if (leading) follow();
  else if (release === null) lead();
}

function lead() {
  if (!("locks" in navigator) || channel === null) {
    leading = true;
    release = stop;
    poll();
    return;
  }
  const giveUp = new AbortController();
  release = () => giveUp.abort();
  navigator.locks
    .request(NAME, { signal: giveUp.signal }, () => {
      leading = true;
      follow();
      return new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
        release = () => {
          stop();
          resolve();
        };
      });
    })
    .catch(() => {
      release = null;
    });
}

function stop() {
  leading = false;
  release = null;
  stream?.close();
  stream = null;
  streamed = "";
  clearTimeout(polling);
  polling = undefined;
}

function follow() {
  const kinds = allKinds().join(",");
  if (polling !== undefined || kinds === streamed) return;
  stream?.close();
  streamed = kinds;
  const opened = new EventSource(address(["v1", "events"], { kinds }), { withCredentials: true });
  stream = opened;
  for (const kind of KINDS) {
    opened.addEventListener(kind, (event) => tell(kind, measured(JSON.parse(/** @type {MessageEvent} */ (event).data)), "live"));
  }
  // Its session ended, or its right: what is asked next says which, and asks for a login.
  opened.addEventListener("problem", () => opened === stream && beginAgain());
  opened.onerror = () => {
    if (opened !== stream) return;
    if (opened.readyState === EventSource.CLOSED) {
      // Refused: the login has ended, there are too many viewers, or the server is older than this call.
      stream = null;
      streamed = "";
      poll();
    } else {
      said("lost");
    }
  };
}

/** Adds how far the clock of the server is ahead of this browser's, told as the snapshot comes: later it would be its age. @param {any} snapshot */
const measured = (snapshot) => ({ ...snapshot, ahead_ms: Date.parse(snapshot.time) - Date.now() });

/** @param {() => void} act */
const ifLeading = (act) => () => {
  if (leading) act();
};

/** Asks once by a single call, and goes on by a stream: another may look now, or nobody any more. */
function beginAgain() {
  stream?.close();
  stream = null;
  streamed = "";
  clearTimeout(polling);
  polling = undefined;
  if (leading) get(["v1", "access", "whoami"]).then(ifLeading(settle), ifLeading(poll));
}

/** Asks for the same by single calls, and then tries the stream again. */
async function poll() {
  polling = setTimeout(async () => {
    polling = undefined;
    if (!leading) return;
    if ("locks" in navigator && channel !== null) follow();
    else poll();
  }, POLL_MS);
  try {
    for (const kind of allKinds()) if (leading) tell(kind, await polled(kind, get), "polling");
  } catch {
    said("lost");
  }
}

/** @param {Kind} kind @param {any} snapshot @param {string} how */
function tell(kind, snapshot, how) {
  newest[kind].set(snapshot);
  state.set(how);
  channel?.postMessage({ kind, snapshot, state: how });
}

/** @param {string} how */
function said(how) {
  state.set(how);
  channel?.postMessage({ state: how });
}
