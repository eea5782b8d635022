/**
 * Calls of `/v1`. The page has no call of its own but the login: what it does curl can do.
 *
 * Addresses are relative to the page's own, which is one folder below the root of the API, whatever a proxy puts before it.
 */

import { store } from "./store.js";

export const ROOT = new URL("../", document.baseURI);
const CALL_TIMEOUT_MS = 60_000;
const SAFE = ["GET", "HEAD"];

/** What was refused for want of a login, while one is asked for; else null. */
export const asking = store(/** @type {Problem | null} */ (null));
/** How often somebody has logged in since the page was loaded: what had ended begins again at each. */
export const logins = store(0);
/** What waits for the login. @type {Set<{ again: () => void, giveUp: (problem: unknown) => void }>} */
const waiting = new Set();
/** Nobody wants to log in now: what is asked again and again by itself does not ask for it. */
let declined = false;

/** What the server refused or could not do, or that it was not reached (`status` 0). */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} said */
  constructor(status, said) {
    super(said.detail || said.title || `HTTP ${status}`);
    this.status = status;
    this.code = said.error_code ?? "";
    this.requestId = said.request_id ?? null;
    this.said = said;
    /** Nobody answered, or who did says that it cannot yet. What took too long is no such thing: it would again. */
    this.away = said.unreached === true || status === 502 || status === 503;
  }
}

/**
 * `asks` is false for what is not to wait for a login.
 * @typedef {{ query?: Record<string, unknown>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal, timeoutMs?: number, asks?: boolean }} Options
 */

/** Makes the address of a call. @param {string[]} path names, which are escaped here @param {Record<string, unknown>} [query] */
export function address(path, query = {}) {
  const url = new URL(path.map(encodeURIComponent).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * Sends a request and gives its answer, once it is a good one. What is refused for want of a login is sent again after it:
 * nothing of it has happened.
 * @param {string} method @param {string[]} path @param {Options} [options] @returns {Promise<Response>}
 */
export async function send(method, path, options = {}) {
  for (;;) {
    const response = await sent(method, path, options);
    if (response.ok) return response;
    const problem = new Problem(response.status, await problemOf(response));
    if (problem.status !== 401 || options.asks === false || (declined && SAFE.includes(method))) throw problem;
    await login(problem, options.signal);
  }
}

/** Waits until somebody has logged in. @param {Problem} problem why, which is thrown where nobody wants to @param {AbortSignal} [signal] */
function login(problem, signal) {
  return new Promise((/** @type {(value?: unknown) => void} */ resolve, reject) => {
    const one = {
      again: () => resolve(),
      giveUp: () => reject(problem),
    };
    signal?.addEventListener("abort", () => waiting.delete(one) && reject(signal.reason));
    waiting.add(one);
    ask(problem);
  });
}

/** Asks for a login. @param {Problem} problem why */
export function ask(problem) {
  declined = false;
  if (asking.get() === null) asking.set(problem);
}

/** Somebody has logged in: what was refused is sent again. */
export function loggedIn() {
  declined = false;
  asking.set(null);
  logins.set(logins.get() + 1);
  for (const one of [...waiting]) waiting.delete(one) && one.again();
}

/** Nobody wants to log in now. */
export function decline() {
  declined = true;
  const problem = asking.get();
  asking.set(null);
  for (const one of [...waiting]) waiting.delete(one) && one.giveUp(problem);
}

/** @param {string} method @param {string[]} path @param {Options} options */
async function sent(method, path, { query, body, headers = {}, signal, timeoutMs = CALL_TIMEOUT_MS }) {
  /** @type {Record<string, string>} */
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  // By the cookie of a login nothing is changed without it: no form of another page can send it.
  /** @type {Record<string, string>} */
  const own = SAFE.includes(method) ? {} : { "Silt-Csrf": "1" };
  const limits = [AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])];
  try {
    return await fetch(address(path, query), {
      method,
      headers: { ...type, ...own, ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      credentials: "same-origin",
      redirect: "error",
      signal: AbortSignal.any(limits),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    if (limits[0].aborted) throw new Problem(0, { detail: `The server has not answered within ${timeoutMs / 1000} s.` });
    throw unreached();
  }
}

function unreached() {
  return new Problem(0, { unreached: true, detail: "The server is not reached. What is shown may be old; it is tried again." });
}

/** @param {Response} response */
async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return { detail: `The server answered ${response.status} ${response.statusText}`.trim() };
  }
}

/** Sends a request and gives what its answer says: JSON, or null for none. @param {string} method @param {string[]} path @param {Options} [options] */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  if (response.status === 204 || response.headers.get("content-length") === "0") return null;
  try {
    return await response.json();
  } catch (error) {
    // Its end did not come: who answered was killed meanwhile.
    if (error instanceof TypeError && !options?.signal?.aborted) throw unreached();
    throw error;
  }
}

/** @param {string[]} path @param {Record<string, unknown>} [query] @param {Options} [options] */
export const get = (path, query, options) => call("GET", path, { ...options, query });

/**
 * Yields the objects of an answer that has one JSON value a line, as they come.
 * @param {Response} response
 */
export async function* lines(response) {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part) yield JSON.parse(part);
  }
  if (rest) yield JSON.parse(rest);
}
