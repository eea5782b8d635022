/** API keys: made (the secret is shown once, and kept nowhere), replaced with an overlap, revoked. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, duration, time } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { useNotAdmin, who } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct } from "../app/use.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Failed } from "../parts/failed.js";
import { Action, Badge } from "../parts/form.js";
import { AsCode, asCurl } from "../parts/snippet.js";
import { Table } from "../parts/table.js";
import { Refused } from "./changing.js";
import { ROLES, Select, Text, namesOf } from "./words.js";

const DAY_MS = 86_400_000;
const PATH = ["v1", "access", "keys"];
/** @type {[string, string][]} */
const EXPIRIES = [["", "never"], ["7", "in 7 days"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];
/** @type {[string, string][]} */
const OVERLAPS = [["0", "not at all: it ends now"], ["3600000", "an hour"], [String(DAY_MS), "a day"], [String(7 * DAY_MS), "a week"], [String(30 * DAY_MS), "30 days"]];

/** @param {{ document: any, again: () => void }} props */
export function Keys({ document, again }) {
  const not = useNotAdmin();
  const chosenZone = useStore(zone);
  const [asking, setAsking] = useState(/** @type {any} */ (null));
  const [held, setHeld] = useState("");
  const close = () => setAsking(null);
  const rolesOf = (/** @type {any} */ key) =>
    Object.values(document.bindings).filter((each) => each.principal === `key:${key.name}`).map((each) => `${each.role}, ${namesOf(each.prefix)}`).join("; ") || NOTHING;
  const columns = [
    { name: "name", title: "Name", cell: (/** @type {any} */ key) => html`<strong>${key.name}</strong>` },
    { name: "id", title: "Key", cell: (/** @type {any} */ key) => html`<code>silt_${key.id}…</code>` },
    { name: "roles", title: "Roles of the name", wide: true, cell: rolesOf },
    { name: "made", title: "Made", cell: (/** @type {any} */ key) => time(key.made_at, chosenZone).slice(0, 16) },
    { name: "expires", title: "Expires", cell: (/** @type {any} */ key) => html`<${Expiry} at=${key.expires_at} />` },
    {
      name: "does",
      title: "Actions",
      cell: (/** @type {any} */ key) => html`<span class="does">
        <${Action} not=${not} act=${() => setAsking({ rotate: key })}>Rotate<span class="unseen"> ${key.name}</span> …<//>
        <${Action} kind="danger" not=${not} act=${() => setAsking({ revoke: key })}>Revoke<span class="unseen"> ${key.name}</span> …<//>
      </span>`,
    },
  ];
  return html`
    <p class="quiet">A key says who a program is: whoever has it is <code>key:NAME</code>. The server keeps a hash of it alone, so it is shown once.</p>
    <p class="actions"><${Action} kind="main" not=${not} act=${() => setAsking({ create: true })}>New key<//></p>
    ${held && html`<p class="note" role="status">${held}</p>`}
    <${Table} caption="Keys" columns=${columns} rows=${document.keys} id=${(/** @type {any} */ key) => key.id} empty="There is no key." />
    ${asking?.create && html`<${Creating} again=${again} close=${close} />`}
    ${asking?.rotate && html`<${Rotating} key=${asking.rotate.id} of=${asking.rotate} again=${again} close=${close} />`}
    ${asking?.revoke && html`<${Revoking} of=${asking.revoke} document=${document} again=${again} close=${close} tell=${setHeld} />`}
  `;
}

/** @param {{ at: string | null }} props */
function Expiry({ at }) {
  const chosenZone = useStore(zone);
  if (at === null) return html`<span class="quiet">never</span>`;
  const left = Date.parse(at) - Date.now();
  if (left <= 0) return html`<${Badge} good=${false}>expired<//>`;
  return html`<span title=${time(at, chosenZone)}>in ${duration(left)}</span>`;
}

/** @param {{ again: () => void, close: () => void }} props */
function Creating({ again, close }) {
  const not = useNotAdmin();
  const [name, setName] = useState("");
  const [role, setRole] = useState("producer");
  const [prefix, setPrefix] = useState("");
  const [days, setDays] = useState("90");
  const expires = days === "" ? undefined : new Date(Date.now() + Number(days) * DAY_MS).toISOString();
  const body = { name, bindings: role === "" ? [] : [{ role, prefix }], ...(expires && { expires_at: expires }) };
  const make = useAct(async () => {
    const made = await call("POST", PATH, { body });
    again();
    return made;
  });
  if (make.result) return html`<${Made} made=${make.result} close=${close} />`;
  const why = not || (name === "" ? "It needs a name." : "");
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (!why) void make.run();
  }
  return html`<${Dialog} title="New key" close=${close}>
    <form onSubmit=${submit}>
      <${Text} label="Name" value=${name} set=${setName} max=${128} hint="The program it is for, such as billing. Letters, digits, dots, dashes and underscores." />
      <${Select} label="Role" value=${role} set=${setRole} of=${[["", "none yet"], ...ROLES.map(([each, gives]) => [each, `${each}: ${gives}`])]} hint="One that can do no more than it must. More are given under Roles." />
      ${role !== "" && html`<${Text} label="For names that begin with" value=${prefix} set=${setPrefix} hint=${prefix === "" ? "Left out: for all names." : "Topics and groups whose names begin so; the cluster not."} />`}
      <${Select} label="Expires" value=${days} set=${setDays} of=${EXPIRIES} />
      <${Refused} problem=${make.problem} again=${again} />
      <p class="actions">
        <${Action} kind="main" type="submit" busy=${make.busy} not=${why}>Make it<//>
        <button type="button" onClick=${close}>Cancel</button>
        <${AsCode} shown=${{ curl: asCurl({ method: "POST", path: PATH, body }) }} />
      </p>
    </form>
  <//>`;
}

/** @param {{ of: any, again: () => void, close: () => void }} props */
function Rotating({ of, again, close }) {
  const not = useNotAdmin();
  const [overlap, setOverlap] = useState(String(DAY_MS));
  const path = [...PATH, of.id, "rotate"];
  const body = { overlap_ms: Number(overlap) };
  const rotate = useAct(async () => {
    const made = await call("POST", path, { body });
    again();
    return made;
  });
  if (rotate.result) return html`<${Made} made=${rotate.result} close=${close} />`;
  return html`<${Dialog} title=${`Rotate ${of.name}`} close=${close}>
    <p>Makes another key of the same name, with the same rights. Give it to the program while the old one still counts.</p>
    <${Select} label="The old one counts for" value=${overlap} set=${setOverlap} of=${OVERLAPS} hint=${overlap === "0" ? "For a key that got out. The program is refused until it has the new one." : ""} />
    <${Refused} problem=${rotate.problem} again=${again} />
    <p class="actions">
      <${Action} kind="main" busy=${rotate.busy} not=${not} act=${rotate.run}>Make the new key<//>
      <button type="button" onClick=${close}>Cancel</button>
      <${AsCode} shown=${{ curl: asCurl({ method: "POST", path, body }) }} />
    </p>
  <//>`;
}

/**
 * A new key, this once. It is in the memory of this component and nowhere else, and goes with it.
 * @param {{ made: any, close: () => void }} props
 */
function Made({ made, close }) {
  const chosenZone = useStore(zone);
  const [copied, setCopied] = useState("");
  const [warned, setWarned] = useState(false);
  async function copy() {
    try {
      await navigator.clipboard.writeText(made.key);
      setCopied("Copied.");
    } catch {
      setCopied("This browser does not let the page copy: mark the key and copy it.");
    }
  }
  return html`<${Dialog} title=${`The key of ${made.name}`} close=${() => (copied || warned ? close() : setWarned(true))}>
    <p class="note"><strong>It is shown this once.</strong> The server keeps a hash of it, and this page nothing. Whoever has it is <code>key:${made.name}</code>.</p>
    <pre class="secret" tabindex="0" aria-label="The key">${made.key}</pre>
    <p class="actions">
      <button type="button" class="main" onClick=${copy}>Copy</button>
      <button type="button" onClick=${close}>I have kept it</button>
      <span role="status">${copied}</span>
    </p>
    ${warned && html`<p class="failed" role="alert">It is not shown again. Copy it first, or close once more.</p>`}
    <p class="quiet">Put it in a file that its program alone may read, and name that in <code>SILT_TOKEN_FILE</code>. ${made.expires_at ? `It expires at ${time(made.expires_at, chosenZone).slice(0, 16)}.` : "It does not expire."}</p>
  <//>`;
}

/** @param {{ of: any, document: any, again: () => void, close: () => void, tell: (text: string) => void }} props */
function Revoking({ of, document, again, close, tell }) {
  const own = useStore(who)?.credential === of.id;
  const last = document.keys.filter((/** @type {any} */ key) => key.name === of.name).length === 1;
  const path = [...PATH, of.id];
  const revoke = useAct(async () => {
    const told = await call("DELETE", path);
    const everywhere = told === null || told.everywhere;
    const said = everywhere ? `The key silt_${of.id}… of ${of.name} counts no more.` : `The key silt_${of.id}… counts no more on this node; on others once the object store answers.`;
    tell([said, ...(told?.warnings ?? [])].join(" "));
    close();
    again();
  });
  return html`<${Confirm} title="Revoke the key" word=${of.name} doing="Revoke it" busy=${revoke.busy} act=${revoke.run} close=${close}>
    <p>The key <code>silt_${of.id}…</code> counts no more, at once, and what it has open is closed.</p>
    ${last && html`<p>It is the last of its name: the roles and entries that give <code>key:${of.name}</code> something go with it. To keep them, rotate it first.</p>`}
    ${own && html`<p class="note">This is the key by which you are here: you are refused from then on.</p>`}
    <${Failed} problem=${revoke.problem} />
    <p><${AsCode} shown=${{ curl: asCurl({ method: "DELETE", path }) }} /></p>
  <//>`;
}
