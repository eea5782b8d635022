/** An action as one would do it without the page: as curl and as Python, never with the token. */
import { html, useState } from "../app/dom.js";
import { address } from "../app/api.js";
import { Dialog } from "./dialog.js";

/** @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** @param {{ method: string, path: string[], query?: Record<string, unknown>, body?: unknown, type?: string, headers?: Record<string, string> }} asked */
export function asCurl({ method, path, query, body, type = "application/json", headers = {} }) {
  const parts = [`curl -sS -X ${method} ${quoted(address(path, query).href)}`, `-H "Authorization: Bearer $SILT_TOKEN"`];
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body !== undefined) {
    parts.push(`-H ${quoted(`Content-Type: ${type}`)}`, `-d ${quoted(typeof body === "string" ? body : JSON.stringify(body))}`);
  }
  return parts.join(" \\\n  ");
}

/**
 * Offers an action as code; `of` says of which, where a form has several.
 * @param {{ shown: { curl: string, python?: string }, of?: string }} props without `python` where the library has no call for it
 */
export function AsCode({ shown, of = "" }) {
  const [open, setOpen] = useState(false);
  return html`<button type="button" class="link" onClick=${() => setOpen(true)}>${shown.python ? "as curl, as Python" : "as curl"}${of && html`<span class="unseen"> of ${of}</span>`}</button>
    ${open &&
    html`<${Dialog} title="The same without this page" close=${() => setOpen(false)} wide=${true}>
      <${Code} name="curl" text=${shown.curl} />
      ${shown.python && html`<${Code} name="Python" text=${shown.python} />`}
      <p class="quiet">Where authentication is off the header with the token can be left out${shown.python && html`; Python takes the token from
        <code>SILT_TOKEN</code>`}.</p>
    <//>`}`;
}

/** @param {{ name: string, text: string }} props */
function Code({ name, text }) {
  const [copied, setCopied] = useState(false);
  /** Copies, where the browser lets a page do so: not over plain http from another machine. */
  async function copy() {
    await navigator.clipboard?.writeText(text);
    setCopied(Boolean(navigator.clipboard));
  }
  return html`<section class="code">
    <div class="bar"><h3>${name}</h3><button type="button" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>
    <pre tabindex="0">${text}</pre>
  </section>`;
}

/** Writes calls of the client for administrators, as a whole program. @param {...string} calls what follows `admin.`, each a line */
export function withAdmin(...calls) {
  return ["from siltlog import Admin", "", `with Admin(${literal(server())}) as admin:`, ...calls.map((call) => `    admin.${call}`)].join("\n");
}

/** Gives the address of the server, with the path that it is below. */
export function server() {
  return address([]).href.replace(/\/$/, "");
}

/** Writes a value as a literal of Python. @param {any} value @returns {string} */
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
