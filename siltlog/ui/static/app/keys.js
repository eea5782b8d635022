/** Keys of the whole page: `/` search, `g` and a letter for a place, `j` `k` rows, Enter open, `?` help. */
import { go } from "./route.js";

const AFTER_G_MS = 1_500;

/** What `g` and a letter lead to. @type {Record<string, [string, string[]]>} */
export const PLACES = {
  o: ["Overview", []],
  t: ["Topics", ["topics"]],
  g: ["Groups", ["groups"]],
  d: ["Dead letters", ["dead_letters"]],
  j: ["Jobs", ["jobs"]],
  q: ["SQL", ["sql"]],
  c: ["Cluster", ["cluster"]],
  m: ["Metrics", ["metrics"]],
  a: ["Access", ["access"]],
  l: ["Audit", ["audit"]],
  s: ["Settings", ["settings"]],
};

/** @param {EventTarget | null} target */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Listens to the keys of the page; `help` shows what they are. @param {() => void} help */
export function listen(help) {
  let afterG = -Infinity;
  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (performance.now() - afterG < AFTER_G_MS && event.key in PLACES) {
      go(PLACES[event.key][1]);
    } else if (event.key === "/") {
      /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus();
    } else if (event.key === "?") {
      help();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    } else {
      afterG = event.key === "g" ? performance.now() : -Infinity;
      return;
    }
    afterG = -Infinity;
    event.preventDefault();
  }
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

/** Moves the focus to the next or the previous row that can be opened. @param {number} by */
function step(by) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-row]")]);
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = rows[at === -1 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next?.focus();
}
