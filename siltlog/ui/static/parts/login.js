/** The login, over whatever the page shows. */
import { asking, decline } from "../app/api.js";
import { html, useRef } from "../app/dom.js";
import { logIn } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct, useGet } from "../app/use.js";
import { Dialog } from "./dialog.js";
import { Failed } from "./failed.js";

/** Asks for a login where something was refused for want of one; what was refused is sent again after it. */
export function Login() {
  const problem = useStore(asking);
  return problem !== null && html`<${Asking} problem=${problem} />`;
}

/** @param {{ problem: any }} props */
function Asking({ problem }) {
  const key = useRef(/** @type {HTMLInputElement | null} */ (null));
  const entering = useAct(logIn);
  const provider = useGet(["ui", "login"]).answer?.provider;
  const ended = problem.said.reason === "expired" || problem.said.reason === "unknown";
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    await entering.run(key.current?.value ?? "");
    key.current?.select();
  }
  return html`<${Dialog} title="Log in" close=${decline}>
    <form onSubmit=${submit}>
      <p>${ended ? "Your session has ended. After the login the page goes on where it was." : "This server asks who calls."}</p>
      <label class="field">API key
        <input ref=${key} type="password" name="key" autocomplete="current-password" autofocus required />
      </label>
      <p class="quiet">Who administers access makes keys: <code>silt access key create NAME --role viewer</code>. The key is not
        kept by this browser; the session that it begins ends after 12 hours, or one without use.</p>
      <${Failed} problem=${entering.problem} />
      <p class="actions">
        <button type="submit" class="main" disabled=${entering.busy}>Log in</button>
        <button type="button" onClick=${decline}>Not now</button>
      </p>
      ${provider && html`<p>Or <a href="login/oidc" target="_blank" rel="noopener">log in at ${provider}</a>: in a tab of its own, and this one
        goes on where it was.</p>`}
    </form>
  <//>`;
}
