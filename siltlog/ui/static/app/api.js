/**
 * Calls of `/v1`. The page has no call of its own but the login: what it does curl can do.
 *
 * Addresses are relative to the page's own, which is one folder below the root of the API, whatever a proxy puts before it.
 */

export const ROOT = new URL("../", document.baseURI);
const CALL_TIMEOUT_MS = 60_000;

/** What the server refused or could not do, or that it was not reached (`status` 0). */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} said */
  constructor(status, said) {
    super(said.detail || said.title || `HTTP ${status}`);
    this.status = status;
    this.code = said.error_code ?? "";
    this.requestId = said.request_id ?? null;
    this.said = said;
  }
}

/** @typedef {{ query?: Record<string, unknown>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal, timeoutMs?: number }} Options */

/** Makes the address of a call. @param {string[]} path names, which are escaped here @param {Record<string, unknown>} [query] */
export function address(path, query = {}) {
  const url = new URL(path.map(encodeURIComponent).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * Sends a request and gives its answer, once it is a good one.
 * @param {string} method @param {string[]} path @param {Options} [options] @returns {Promise<Response>}
 */
export async function send(method, path, options = {}) {
  const response = await sent(method, path, options);
  if (!response.ok) throw new Problem(response.status, await problemOf(response));
  return response;
}

/** @param {string} method @param {string[]} path @param {Options} options */
async function sent(method, path, { query, body, headers = {}, signal, timeoutMs = CALL_TIMEOUT_MS }) {
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const limits = [AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])];
  try {
    return await fetch(address(path, query), {
      method,
      headers: { ...type, ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      credentials: "same-origin",
      redirect: "error",
      signal: AbortSignal.any(limits),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {
      detail: limits[0].aborted
        ? `The server has not answered within ${timeoutMs / 1000} s.`
        : "The server is not reached. What is shown may be old; it is tried again.",
    });
  }
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
  return response.json();
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
