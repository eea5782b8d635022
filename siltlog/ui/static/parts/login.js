/** The login, over whatever page is shown: what was refused is done afterwards. */
import { html, useState } from "../app/dom.js";
import { giveUp, login, ways } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct } from "../app/use.js";
import { Dialog } from "./dialog.js";
import { Failed } from "./failed.js";

export function Login() {
  const offered = useStore(ways);
  const [key, setKey] = useState("");
  const enter = useAct(login);
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    void enter.run(key.trim());
  }
  const methods = offered?.methods ?? [];
  return html`<${Dialog} title="Log in" close=${giveUp}>
    ${methods.includes("oidc") && html`<p><a class="button main" href="oidc/start">Log in with your organisation</a></p>`}
    ${methods.includes("key") &&
    html`<form onSubmit=${submit}>
      <label class="field">API key
        <input type="password" autocomplete="current-password" spellcheck="false" required value=${key}
          onInput=${(/** @type {any} */ event) => setKey(event.target.value)} />
      </label>
      <p class="quiet">Made by <code>silt access key create NAME --role ROLE</code>. It is not kept here: the server gives
        this browser a session, which ends after twelve hours.</p>
      <${Failed} problem=${enter.problem} />
      <p class="actions"><button type="submit" class="main" disabled=${enter.busy}>Log in</button></p>
    </form>`}
    ${offered !== null && methods.length === 0 && html`<p>This server offers no login to this page (<code>SILT_UI</code>).</p>`}
  <//>`;
}
