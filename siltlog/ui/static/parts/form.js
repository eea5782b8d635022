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
 * @param {{ act: () => void, not?: string, busy?: boolean, kind?: string, children?: any }} props `not` is why not
 */
export function Action({ act, not = "", busy = false, kind = "", children }) {
  return html`<button type="button" class=${kind} aria-disabled=${not ? "true" : undefined} disabled=${busy}
    title=${not || undefined} onClick=${() => not || act()}>${children}${not && html`<span class="unseen"> (${not})</span>`}</button>`;
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
