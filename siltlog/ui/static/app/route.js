/**
 * Where in the page one is: `#/topics/orders/records?key=ada` is the path `["topics", "orders", "records"]` and its query.
 * Everything is behind the `#`, so the page works below any path of a proxy.
 */
import { store } from "./store.js";

/** @typedef {{ path: string[], query: URLSearchParams }} Route */

/** @param {string} hash @returns {Route} */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(unescaped), query: new URLSearchParams(query) };
}

/** @param {string} text */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Makes the address of a place. @param {string[]} path @param {Record<string, unknown>} [query] empty values are left out */
export function href(path, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export const route = store(parsed(location.hash));
addEventListener("hashchange", () => route.set(parsed(location.hash)));

/** @param {string[]} path @param {Record<string, unknown>} [query] */
export function go(path, query) {
  location.hash = href(path, query);
}

/** Puts the query into the address without a step of its own in the browser's history. @param {Record<string, unknown>} query */
export function setQuery(query) {
  const { path } = route.get();
  // Whoever is on the way elsewhere stays on it.
  if (parsed(location.hash).path.join("/") !== path.join("/")) return;
  history.replaceState(null, "", href(path, query));
  route.set(parsed(location.hash));
}
