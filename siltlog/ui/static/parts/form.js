/** Small parts of forms and headings. */
import { html } from "../app/dom.js";

/** @param {{ title: any, children?: any }} props */
export function Heading({ title, children }) {
  return html`<div class="heading"><h1 tabindex="-1">${title}</h1>${children}</div>`;
}

/** @param {{ label: any, hint?: any, children: any }} props */
export function Field({ label, hint, children }) {
  return html`<div class="field"><label class="field">${label}${children}</label>${hint && html`<span class="quiet">${hint}</span>`}</div>`;
}

/**
 * A button that says why it cannot be pressed: it stays reachable, so that the reason is.
 * @param {{ act?: () => void, type?: "button" | "submit", not?: string, busy?: boolean, kind?: string, children?: any }} props
 *   `not` is why not; with `submit` its form acts, once its fields hold what they may
 */
export function Action({ act, type = "button", not = "", busy = false, kind = "", children }) {
  return html`<button type=${type} class=${kind} aria-disabled=${not ? "true" : undefined} disabled=${busy}
    title=${not || undefined} onClick=${(/** @type {Event} */ event) => (not ? event.preventDefault() : act?.())}>${children}${not && html`<span class="unseen"> (${not})</span>`}</button>`;
}

/** So many partitions are offered by name; of more the number is typed. */
const OFFERED = 200;

/** Chooses one partition or none. @param {{ of: number, value: string, none: string, set: (value: string) => void }} props `none` says what none means */
export function PartitionField({ of, value, none, set }) {
  const changed = (/** @type {any} */ event) => set(event.target.value);
  if (of > OFFERED) {
    return html`<${Field} label="Partition"><input type="number" min="0" max=${of - 1} placeholder=${none} value=${value} onInput=${changed} /><//>`;
  }
  return html`<${Field} label="Partition"><select value=${value} onChange=${changed}>
    <option value="">${none}</option>
    ${Array.from({ length: of }, (_, partition) => html`<option key=${partition} value=${String(partition)}>${partition}</option>`)}
  </select><//>`;
}

/** @param {{ label: string, tabs: [string, string][], chosen: string, to: (tab: string) => string }} props `to` gives the address of a tab */
export function Tabs({ label, tabs, chosen, to }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(([tab, name]) => html`<a key=${tab} href=${to(tab)} aria-current=${tab === chosen ? "page" : undefined}>${name}</a>`)}
  </nav>`;
}

/** @param {{ good: boolean | null, children: any }} props null: neither */
export function Badge({ good, children }) {
  const kind = good === null ? "neutral" : good ? "good" : "bad";
  const mark = good === null ? "○" : good ? "●" : "▲";
  return html`<span class="badge ${kind}"><span aria-hidden="true">${mark}</span> ${children}</span>`;
}

/** The state of a group. @param {{ state: string | null }} props */
export function State({ state }) {
  return html`<${Badge} good=${state === "stable" ? true : null}>${state ?? "not known"}<//>`;
}
