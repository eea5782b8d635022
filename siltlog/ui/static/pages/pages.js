/**
 * Which page is at which place. The modules of a page are fetched when it is first looked at, or once there is nothing else
 * to do: then it is there at once, also while the server is not.
 */
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { state as liveState } from "../app/live.js";
import { href } from "../app/route.js";
import { useStore } from "../app/store.js";
import { Failed } from "../parts/failed.js";
import { Heading } from "../parts/form.js";

/** What is shown goes first. */
const REST_MS = 2_000;
const IDLE_MS = 5_000;

/** @typedef {() => Promise<(props: any) => any>} Fetch */

/** @type {Fetch} */
const overview = async () => (await import("./overview.js")).Overview;
/** @type {Fetch} */
const access = async () => (await import("./access.js")).Access;
/** Of each place the page of the whole, and that of one by its name. @type {Map<string, Fetch[]>} */
const PAGES = new Map([
  ["topics", [async () => (await import("./topics.js")).Topics, async () => (await import("./topic.js")).Topic]],
  ["groups", [async () => (await import("./groups.js")).Groups, async () => (await import("./group.js")).Group]],
  ["dead_letters", [async () => (await import("./dead_letters.js")).DeadLetters, async () => (await import("./letters.js")).Letters]],
  ["jobs", [async () => (await import("./jobs.js")).Jobs, async () => (await import("./jobs.js")).Job]],
  ["sql", [async () => (await import("./sql.js")).Sql]],
  ["cluster", [async () => (await import("./cluster.js")).Cluster]],
  ["metrics", [async () => (await import("./metrics.js")).Metrics]],
  ["access", [access, access]],
  ["audit", [async () => (await import("./audit.js")).Audit]],
  ["settings", [async () => (await import("./settings.js")).Settings]],
]);

/** Gives what fetches the component that shows a place. @param {string[]} path @returns {Fetch} */
function pageOf(path) {
  if (path.length === 0) return overview;
  return PAGES.get(path[0])?.[path.length > 1 ? 1 : 0] ?? (async () => Nowhere);
}

/** Fetches all pages while the browser has nothing else to do; one that fails is fetched when it is looked at. */
export function fetchWhenIdle() {
  const all = () => void Promise.allSettled([overview, ...[...PAGES.values()].flat()].map((each) => each()));
  setTimeout(() => ("requestIdleCallback" in window ? requestIdleCallback(all, { timeout: IDLE_MS }) : all()), REST_MS);
}

/** @param {{ path: string[], query: URLSearchParams, shown: () => void }} props `shown` is called once it is there */
export function Page({ path, query, shown }) {
  const [page, setPage] = useState(/** @type {((props: any) => any) | null} */ (null));
  const [failed, setFailed] = useState(false);
  useReloadOnReturn(failed);
  useEffect(() => {
    pageOf(path)().then(
      (found) => setPage(() => found),
      () => setFailed(true),
    );
  }, []);
  useEffect(() => {
    if (page !== null) shown();
  }, [page]);
  if (failed) return html`<${Failed} problem=${UNREACHED} again=${() => location.reload()} />`;
  if (page === null) return html`<p class="quiet" role="status">Loading …</p>`;
  return html`<${page} path=${path} query=${query} />`;
}

/**
 * Loads everything again once a server that went away is back: browsers may remember that a module was not reached. Not
 * where it never went, as a module that an upgrade took would not be there the next time either.
 * @param {boolean} wanted
 */
function useReloadOnReturn(wanted) {
  const how = useStore(liveState);
  const lost = useRef(false);
  useEffect(() => {
    if (how === "lost") lost.current = true;
    else if (wanted && lost.current) location.reload();
  }, [wanted, how]);
}

const UNREACHED = { message: "This part of the page could not be loaded: the server is not reached, or it was upgraded since." };

function Nowhere() {
  return html`<${Heading} title="There is no such page" />
    <p><a href=${href([])}>To the overview</a></p>`;
}
