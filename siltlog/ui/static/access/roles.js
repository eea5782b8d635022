/** Roles: bundles of rights, given to somebody for all names or for those of a prefix. */
import { html, useState } from "../app/dom.js";
import { useNotAdmin } from "../app/session.js";
import { Action } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { Editing, Removing } from "./changing.js";
import { Principal, ROLES, Select, Text, nameOf, namesOf } from "./words.js";

/** @param {{ document: any, again: () => void }} props */
export function Roles({ document, again }) {
  const not = useNotAdmin();
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const rows = Object.entries(document.bindings).map(([id, binding]) => ({ id, .../** @type {any} */ (binding) }));
  const columns = [
    { name: "principal", title: "To whom", cell: (/** @type {any} */ row) => html`<code>${row.principal}</code>` },
    { name: "role", title: "Role", cell: (/** @type {any} */ row) => row.role },
    { name: "prefix", title: "For", cell: (/** @type {any} */ row) => namesOf(row.prefix) },
    { name: "id", title: "Called", cell: (/** @type {any} */ row) => html`<code>${row.id}</code>` },
    {
      name: "does",
      title: "Actions",
      cell: (/** @type {any} */ row) => html`<span class="does">
        <${Action} not=${not} act=${() => setEditing(row)}>Change<span class="unseen"> ${row.id}</span> …<//>
        <${Removing} part="bindings" id=${row.id} what="role" document=${document} again=${again}>
          <p><code>${row.principal}</code> has the role ${row.role} no more, for ${namesOf(row.prefix)}. What others give stays.</p>
        <//>
      </span>`,
    },
  ];
  return html`
    <dl class="facts">${ROLES.map(([role, gives]) => html`<dt key=${role}>${role}</dt><dd>${gives}</dd>`)}</dl>
    <p class="actions"><${Action} kind="main" not=${not} act=${() => setEditing({})}>Give a role<//></p>
    <${Table} caption="Roles" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.id} empty="Nobody has a role." />
    ${editing && html`<${Giving} of=${editing} document=${document} again=${again} close=${() => setEditing(null)} />`}
  `;
}

/** @param {{ of: any, document: any, again: () => void, close: () => void }} props */
function Giving({ of, document, again, close }) {
  const [principal, setPrincipal] = useState(of.principal ?? "");
  const [role, setRole] = useState(of.role ?? "consumer");
  const [prefix, setPrefix] = useState(of.prefix ?? "");
  const [named, setNamed] = useState("");
  const fresh = of.id === undefined;
  return html`<${Editing} title=${fresh ? "Give a role" : `Change ${of.id}`} part="bindings" id=${fresh ? named || (principal && nameOf([principal, role, prefix])) : of.id}
    setId=${fresh ? setNamed : undefined} body=${{ principal, role, prefix }} not=${principal === "" ? "Say to whom." : ""} document=${document} again=${again} close=${close}>
    <${Principal} document=${document} value=${principal} set=${setPrincipal} />
    <${Select} label="Role" value=${role} set=${setRole} of=${ROLES.map(([each, gives]) => [each, `${each}: ${gives}`])} />
    <${Text} label="For names that begin with" value=${prefix} set=${setPrefix} hint=${prefix === "" ? "Left out: for all names, and for the cluster where the role has something there." : "Topics and groups whose names begin so; the cluster not."} />
  <//>`;
}
