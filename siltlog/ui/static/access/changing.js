/**
 * Changes of roles, entries and quotas: each is one document with a version, and a change is made of the version that was
 * shown. When somebody else changed it meanwhile the server refuses, and nothing is lost by trying again.
 */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { useNotAdmin } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Failed } from "../parts/failed.js";
import { Action } from "../parts/form.js";
import { AsCode, asCurl } from "../parts/snippet.js";
import { Text } from "./words.js";

/** Shows why a change was refused, and what to do where another one came before it. @param {{ problem: any, again: () => void }} props */
export function Refused({ problem, again }) {
  return html`<${Failed} problem=${problem} />
    ${problem?.code === "access_changed" &&
    html`<p class="note">Somebody else changed access since it was shown here.
      <button type="button" class="link" onClick=${again}>Load it again</button>, look whether your change still fits, and send it once more.</p>`}`;
}

/**
 * A form that puts one part, new or as it is to be.
 * @param {{
 *   title: string,
 *   part: "bindings"|"acls"|"quotas",
 *   id: string,
 *   setId?: (id: string) => void,
 *   body: any,
 *   not?: string,
 *   document: any,
 *   again: () => void,
 *   close: () => void,
 *   children?: any,
 * }} props `setId` is there for a new one, `not` is what is missing in the form
 */
export function Editing({ title, part, id, setId, body, not = "", document, again, close, children }) {
  const refused = useNotAdmin();
  const path = ["v1", "access", part, id];
  const headers = { "If-Match": `"${document.version}"` };
  const put = useAct(async () => {
    await call("PUT", path, { body, headers });
    again();
    close();
  });
  const taken = setId !== undefined && Object.hasOwn(document[part], id) ? `There is one called ${id}: choose another name, or change that one.` : "";
  const why = refused || not || (id === "" ? "It needs a name." : taken);
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (!why) void put.run();
  }
  return html`<${Dialog} title=${title} close=${close}>
    <form onSubmit=${submit}>
      ${children}
      ${setId && html`<${Text} label="Its name" value=${id} set=${setId} max=${196} hint=${taken || "What this one is called, in decisions and in the audit log. Letters, digits, dots, dashes and underscores."} />`}
      <${Refused} problem=${put.problem} again=${again} />
      <p class="actions">
        <${Action} kind="main" type="submit" busy=${put.busy} not=${why}>Save<//>
        <button type="button" onClick=${close}>Cancel</button>
        ${why && html`<span class="quiet">${why}</span>`}
        ${id && html`<${AsCode} shown=${{ curl: asCurl({ method: "PUT", path, body, headers }) }} />`}
      </p>
    </form>
  <//>`;
}

/**
 * A button that removes one part, once its name was typed.
 * @param {{ part: "bindings"|"acls"|"quotas", id: string, what: string, document: any, again: () => void, children?: any }} props
 */
export function Removing({ part, id, what, document, again, children }) {
  const not = useNotAdmin();
  const [asking, setAsking] = useState(false);
  const path = ["v1", "access", part, id];
  const headers = { "If-Match": `"${document.version}"` };
  const remove = useAct(async () => {
    await call("DELETE", path, { headers });
    setAsking(false);
    again();
  });
  return html`<${Action} kind="danger" not=${not} act=${() => (remove.clear(), setAsking(true))}>Remove<span class="unseen"> ${id}</span> …<//>
    ${asking &&
    html`<${Confirm} title=${`Remove the ${what}`} word=${id} doing="Remove it" busy=${remove.busy} act=${remove.run} close=${() => setAsking(false)}>
      ${children}
      <${Refused} problem=${remove.problem} again=${again} />
      <p><${AsCode} shown=${{ curl: asCurl({ method: "DELETE", path, headers }) }} /></p>
    <//>`}`;
}
