/** Quotas: how much a principal may take a second and how many things it may make, or how much goes to one topic. */
import { html, useState } from "../app/dom.js";
import { bytes, count, short } from "../app/format.js";
import { useNotAdmin } from "../app/session.js";
import { Action } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { Editing, Removing } from "./changing.js";
import { Principal, Select, Text, nameOf } from "./words.js";

/** @param {number} n */
const rate = (n) => `${bytes(n)}/s`;
/** What may be bounded: its name, what it is, how it is written, whether a topic has it. @type {[string, string, (n: number) => string, boolean][]} */
const BOUNDS = [
  ["publish_bytes_per_s", "Published, bytes a second", (n) => `${rate(n)} published`, true],
  ["read_bytes_per_s", "Read, bytes a second", (n) => `${rate(n)} read`, true],
  ["requests_per_s", "Requests a second", (n) => `${short(n)} requests/s`, true],
  ["topics_max", "Topics it may make", (n) => count(n, "topic"), false],
  ["partitions_max", "Partitions it may make", (n) => count(n, "partition"), false],
  ["groups_max", "Groups it may make", (n) => count(n, "group"), false],
];

/** Says all that a quota bounds. @param {any} row */
function bounded(row) {
  return BOUNDS.filter(([name]) => row[name] !== null).map(([name, , write]) => write(row[name])).join(" · ");
}

/** @param {{ document: any, again: () => void }} props */
export function Quotas({ document, again }) {
  const not = useNotAdmin();
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const rows = Object.entries(document.quotas).map(([id, quota]) => ({ id, .../** @type {any} */ (quota) }));
  const columns = [
    { name: "of", title: "Of", cell: (/** @type {any} */ row) => (row.principal === null ? `topic ${row.topic === "*" ? "* (each that has none)" : row.topic}` : html`<code>${row.principal}</code>${row.principal === "*" ? " (each that has none)" : ""}`) },
    { name: "bounds", title: "At most", wide: true, cell: bounded },
    { name: "burst", title: "Burst", number: true, cell: (/** @type {any} */ row) => `${short(row.burst_seconds)} s` },
    { name: "id", title: "Called", cell: (/** @type {any} */ row) => html`<code>${row.id}</code>` },
    {
      name: "does",
      title: "Actions",
      cell: (/** @type {any} */ row) => html`<span class="does">
        <${Action} not=${not} act=${() => setEditing(row)}>Change<span class="unseen"> ${row.id}</span> …<//>
        <${Removing} part="quotas" id=${row.id} what="quota" document=${document} again=${again}><p>What it bounded is bounded by that of * from then on, where there is one.</p><//>
      </span>`,
    },
  ];
  return html`
    <p class="quiet">A quota bounds what one principal takes, or what all together do to one topic; * is each that no other names. It counts on each node for itself.</p>
    <p class="actions"><${Action} kind="main" not=${not} act=${() => setEditing({})}>New quota<//></p>
    <${Table} caption="Quotas" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.id} empty="Nothing is bounded." />
    ${editing && html`<${Bounding} of=${editing} document=${document} again=${again} close=${() => setEditing(null)} />`}
  `;
}

/** @param {{ of: any, document: any, again: () => void, close: () => void }} props */
function Bounding({ of, document, again, close }) {
  const [scope, setScope] = useState(of.topic ? "topic" : "principal");
  const [name, setName] = useState(of.principal ?? of.topic ?? "");
  const [burst, setBurst] = useState(String(of.burst_seconds ?? 2));
  const [bounds, setBounds] = useState(/** @type {Record<string, string>} */ (Object.fromEntries(BOUNDS.map(([each]) => [each, of[each] == null ? "" : String(of[each])]))));
  const [named, setNamed] = useState("");
  const fresh = of.id === undefined;
  const fitting = BOUNDS.filter(([, , , topics]) => scope === "principal" || topics);
  const said = Object.fromEntries(fitting.filter(([each]) => bounds[each] !== "").map(([each]) => [each, Number(bounds[each])]));
  const body = { [scope]: name, ...said, burst_seconds: Number(burst) };
  const not = name === "" ? "Say of whom." : Object.keys(said).length === 0 ? "Bound something." : "";
  return html`<${Editing} title=${fresh ? "New quota" : `Change ${of.id}`} part="quotas" id=${fresh ? named || (name && nameOf([name === "*" ? "everybody" : name])) : of.id}
    setId=${fresh ? setNamed : undefined} body=${body} not=${not} document=${document} again=${again} close=${close}>
    <${Select} label="Of" value=${scope} set=${setScope} of=${[["principal", "a principal"], ["topic", "a topic"]]} />
    ${scope === "principal"
      ? html`<${Principal} label="Whose" document=${document} value=${name} set=${setName} hint="key:NAME, user:SUBJECT, cert:NAME, or * for each that has none." />`
      : html`<${Text} label="Topic" value=${name} set=${setName} hint="* for each that has none." />`}
    ${fitting.map(([each, title]) => html`<${Text} key=${each} label=${title} type="number" value=${bounds[each]} set=${(/** @type {string} */ value) => setBounds({ ...bounds, [each]: value })} />`)}
    <${Text} label="Burst, seconds" type="number" value=${burst} set=${setBurst} hint="So many seconds' worth may be taken at once. What is left empty above has no bound." />
  <//>`;
}
