/** Access: keys, roles, entries, quotas, and whether somebody may do something. */
import { Check } from "../access/check.js";
import { Entries } from "../access/entries.js";
import { Keys } from "../access/keys.js";
import { Quotas } from "../access/quotas.js";
import { Roles } from "../access/roles.js";
import { html } from "../app/dom.js";
import { href } from "../app/route.js";
import { useLacks, who } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useGet } from "../app/use.js";
import { Loaded } from "../parts/failed.js";
import { Heading, Tabs } from "../parts/form.js";

/** @type {[string, string, (props: any) => any][]} */
const TABS = [
  ["keys", "Keys", Keys],
  ["roles", "Roles", Roles],
  ["entries", "Entries", Entries],
  ["quotas", "Quotas", Quotas],
  ["check", "May …?", Check],
];

/** @param {{ path: string[] }} props */
export function Access({ path }) {
  const caller = useStore(who);
  const lacks = useLacks();
  const [tab, , Shown] = TABS.find(([each]) => each === path[1]) ?? TABS[0];
  if (caller === null) return html`<${Heading} title="Access" />`;
  if (caller.auth === "off") return html`<${Heading} title="Access" /><${Off} />`;
  const lacking = lacks("admin", "cluster");
  if (lacking) return html`<${Heading} title="Access" /><p class="note">${lacking}</p>`;
  return html`
    <${Heading} title="Access" />
    <${Tabs} label="What of access" chosen=${tab} tabs=${TABS.map(([each, name]) => [each, name])} to=${(/** @type {string} */ each) => href(["access", each])} />
    <${Document} shown=${Shown} />
  `;
}

/** @param {{ shown: (props: any) => any }} props */
function Document({ shown: Shown }) {
  const read = useGet(["v1", "access"]);
  return html`<${Loaded} of=${read}>${(/** @type {any} */ document) => html`
    <${Shown} document=${document} again=${read.again} />
    <p class="quiet">Access document, version ${document.version}. <button type="button" class="link" onClick=${read.again}>Load it again</button></p>`}
  <//>`;
}

/** Says that nobody is asked who they are, and how that is changed. */
function Off() {
  return html`
    <div class="note"><p><strong>Authentication is off.</strong> Whoever reaches this server may do everything on it, so there are no keys and no roles.</p></div>
    <h2>Turn it on</h2>
    <ol class="steps">
      <li>Stop the server, and make the key that administers everything. It is shown this once:
        <pre tabindex="0">umask 077${"\n"}silt access bootstrap ops --output value > ops.token</pre></li>
      <li>Start the server with it on:
        <pre tabindex="0">SILT_AUTH=on silt serve</pre></li>
      <li>Come back here with that key, and give each program one of its own.</li>
    </ol>
    <p class="quiet">What other machines reach needs TLS too: <code>SILT_TLS_CERT</code> and <code>SILT_TLS_KEY</code>.</p>
  `;
}
