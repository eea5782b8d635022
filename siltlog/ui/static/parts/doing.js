/** Something that a button has done: what it does is said before, and how it is done without the page. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { useAct } from "../app/use.js";
import { Confirm, Dialog } from "./dialog.js";
import { Failed } from "./failed.js";
import { Action } from "./form.js";
import { AsCode, asCurl, withAdmin } from "./snippet.js";

/** @typedef {{ method: string, path: string[], query?: Record<string, unknown>, body?: unknown }} Asked */

/**
 * A button that asks before it does something; without children it does it at once, and shows the code beside it.
 * @param {{
 *   name: string,
 *   asked: Asked[],
 *   python: string,
 *   title?: string,
 *   word?: string,
 *   kind?: string,
 *   not?: string,
 *   begin?: () => void,
 *   done?: (said: any) => void,
 *   children?: any,
 * }} props `asked` are the calls, one after the other, none while they are not known; `python` is what follows `admin.`, each call a line;
 *   `word` has to be typed first; `not` says why it cannot be done; `begin` hears that it is asked about, `done` what the last call answered
 */
export function Doing({ name, asked, python, title = name, word = "", kind = "", not = "", begin, done, children }) {
  const [open, setOpen] = useState(false);
  const act = useAct(async () => {
    let said = null;
    for (const { method, path, query, body } of asked) said = await call(method, path, { query, body });
    setOpen(false);
    done?.(said);
  });
  const code = asked.length > 0 && html`<${AsCode} shown=${{ curl: asked.map(asCurl).join("\n"), python: withAdmin(...python.split("\n")) }} />`;
  if (!children) {
    return html`<${Action} kind=${kind} not=${not} busy=${act.busy} act=${act.run}>${name}<//> ${!not && code}<${Failed} problem=${act.problem} />`;
  }
  const close = () => setOpen(false);
  const busy = act.busy || asked.length === 0;
  const about = html`${children}<${Failed} problem=${act.problem} />${code && html`<p>${code}</p>`}`;
  return html`<${Action} kind=${kind} not=${not} act=${() => (act.clear(), begin?.(), setOpen(true))}>${name} …<//>
    ${open &&
    (word
      ? html`<${Confirm} title=${title} word=${word} doing=${name} busy=${busy} act=${act.run} close=${close}>${about}<//>`
      : html`<${Dialog} title=${title} close=${close}>
          <form onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), act.run())}>
            ${about}
            <p class="actions">
              <button type="submit" class="main" disabled=${busy}>${name}</button>
              <button type="button" onClick=${close}>Cancel</button>
            </p>
          </form>
        <//>`)}`;
}
