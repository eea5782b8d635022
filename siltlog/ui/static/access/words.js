/** The words of access: roles, rights and whom they are given to, each said once. */
import { html } from "../app/dom.js";
import { Field } from "../parts/form.js";

/** What each role gives. @type {[string, string][]} */
export const ROLES = [
  ["producer", "writes to topics"],
  ["consumer", "reads topics and groups"],
  ["viewer", "sees what there is, never a value"],
  ["operator", "makes, alters and deletes topics and groups, and sees the cluster; reads no value"],
  ["admin", "may do everything"],
];
/** @type {Record<string, string[]>} */
export const RIGHTS = {
  topic: ["read", "write", "create", "alter", "delete", "describe"],
  group: ["read", "alter", "delete", "describe"],
  cluster: ["describe", "write", "alter", "admin"],
};
export const CLUSTER = "cluster";

/** Lists whom the document knows of. @param {any} document */
export function principals(document) {
  const parts = [document.bindings, document.acls, document.quotas].flatMap((part) => Object.values(part));
  return [...new Set([...document.keys.map((/** @type {any} */ key) => `key:${key.name}`), ...parts.map((part) => part.principal)])].filter(Boolean).sort();
}

/** Writes what a prefix means. @param {string} prefix */
export function namesOf(prefix) {
  return prefix === "" ? "all names" : `names that begin with ${prefix}`;
}

/** @param {{ document: any, value: string, set: (value: string) => void, label?: string, hint?: string }} props */
export function Principal({ document, value, set, label = "To whom", hint = "key:NAME, user:SUBJECT, cert:NAME, group:NAME, or * for everybody." }) {
  return html`<${Field} label=${label} hint=${hint}>
    <input required list="principals" autocomplete="off" spellcheck=${false} value=${value} onInput=${(/** @type {any} */ event) => set(event.target.value)} />
    <datalist id="principals">${principals(document).map((each) => html`<option key=${each} value=${each} />`)}</datalist>
  <//>`;
}

/** @param {{ label: string, value: string, of: (string | [string, string])[], set: (value: string) => void, hint?: any }} props */
export function Select({ label, value, of, set, hint }) {
  const options = of.map((each) => (typeof each === "string" ? [each, each] : each));
  return html`<${Field} label=${label} hint=${hint}><select value=${value} onChange=${(/** @type {any} */ event) => set(event.target.value)}>
    ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
  </select><//>`;
}

/** @param {{ label: string, value: string, set: (value: string) => void, hint?: any, type?: string, required?: boolean, max?: number }} props */
export function Text({ label, value, set, hint, type = "text", required = false, max }) {
  return html`<${Field} label=${label} hint=${hint}>
    <input type=${type} required=${required} maxlength=${max} min=${type === "number" ? "0" : undefined} step=${type === "number" ? "any" : undefined}
      autocomplete="off" spellcheck=${false} value=${value} onInput=${(/** @type {any} */ event) => set(event.target.value)} />
  <//>`;
}

/** Makes a name of what something is, of letters that a name may have. @param {string[]} parts */
export function nameOf(parts) {
  return parts.filter(Boolean).join("-").replace(/^(key|user|cert|group):/, "").replace(/[^a-zA-Z0-9._-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 196);
}
