/** Entries: single rights to a name or a prefix, allowed or denied. One that denies wins over all that allows. */
import { html, useState } from "../app/dom.js";
import { useNotAdmin } from "../app/session.js";
import { Action, Badge } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { Editing, Removing } from "./changing.js";
import { CLUSTER, Principal, RIGHTS, Select, Text, nameOf } from "./words.js";

/** @param {any} entry */
function of(entry) {
  if (entry.kind === CLUSTER) return "the cluster";
  if (entry.pattern === "prefix") return entry.name === "" ? `all ${entry.kind}s` : `${entry.kind}s that begin with ${entry.name}`;
  return `${entry.kind} ${entry.name}`;
}

/** @param {{ document: any, again: () => void }} props */
export function Entries({ document, again }) {
  const not = useNotAdmin();
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const rows = Object.entries(document.acls).map(([id, entry]) => ({ id, .../** @type {any} */ (entry) }));
  const columns = [
    { name: "effect", title: "Effect", cell: (/** @type {any} */ row) => html`<${Badge} good=${row.effect === "allow"}>${row.effect === "allow" ? "allows" : "denies"}<//>` },
    { name: "principal", title: "Whom", cell: (/** @type {any} */ row) => html`<code>${row.principal}</code>` },
    { name: "operations", title: "To", cell: (/** @type {any} */ row) => row.operations.join(", ") },
    { name: "of", title: "What", cell: of },
    { name: "id", title: "Called", cell: (/** @type {any} */ row) => html`<code>${row.id}</code>` },
    {
      name: "does",
      title: "Actions",
      cell: (/** @type {any} */ row) => html`<span class="does">
        <${Action} not=${not} act=${() => setEditing(row)}>Change<span class="unseen"> ${row.id}</span> …<//>
        <${Removing} part="acls" id=${row.id} what="entry" document=${document} again=${again}>
          <p>${row.effect === "allow" ? "What it allowed is allowed no more, unless something else does." : "What it denied may be allowed from then on."}</p>
        <//>
      </span>`,
    },
  ];
  return html`
    <p class="quiet">An entry allows or denies single rights, where a role gives too much or too little. One that denies wins over all that allows.</p>
    <p class="actions"><${Action} kind="main" not=${not} act=${() => setEditing({})}>New entry<//></p>
    <${Table} caption="Entries" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.id} empty="There is no entry: roles alone say who may do what." />
    ${editing && html`<${Entering} of=${editing} document=${document} again=${again} close=${() => setEditing(null)} />`}
  `;
}

/** @param {{ of: any, document: any, again: () => void, close: () => void }} props */
function Entering({ of: given, document, again, close }) {
  const [principal, setPrincipal] = useState(given.principal ?? "");
  const [effect, setEffect] = useState(given.effect ?? "allow");
  const [kind, setKind] = useState(given.kind ?? "topic");
  const [pattern, setPattern] = useState(given.pattern ?? "literal");
  const [name, setName] = useState(given.kind === CLUSTER ? "" : (given.name ?? ""));
  const [chosen, setChosen] = useState(/** @type {string[]} */ (given.operations ?? ["read"]));
  const [named, setNamed] = useState("");
  const fresh = given.id === undefined;
  const whole = kind === CLUSTER;
  const operations = RIGHTS[kind].filter((each) => chosen.includes(each));
  const body = { principal, effect, kind, operations, name: whole ? CLUSTER : name, pattern: whole ? "literal" : pattern };
  const not = principal === "" ? "Say to whom." : operations.length === 0 ? "Choose a right." : !whole && pattern === "literal" && name === "" ? `Say which ${kind}.` : "";
  return html`<${Editing} title=${fresh ? "New entry" : `Change ${given.id}`} part="acls" id=${fresh ? named || (principal && nameOf([principal, effect, kind, body.name])) : given.id}
    setId=${fresh ? setNamed : undefined} body=${body} not=${not} document=${document} again=${again} close=${close}>
    <div class="row">
      <${Select} label="It" value=${effect} set=${setEffect} of=${[["allow", "allows"], ["deny", "denies"]]} />
      <${Select} label="Of what" value=${kind} set=${setKind} of=${[["topic", "a topic"], ["group", "a group"], [CLUSTER, "the cluster"]]} />
    </div>
    <${Principal} document=${document} value=${principal} set=${setPrincipal} />
    <fieldset class="choice"><legend>Rights</legend>
      ${RIGHTS[kind].map((each) => html`<label key=${each}><input type="checkbox" checked=${chosen.includes(each)}
        onChange=${() => setChosen(chosen.includes(each) ? chosen.filter((other) => other !== each) : [...chosen, each])} />${each}</label>`)}
    </fieldset>
    ${!whole &&
    html`<div class="row">
      <${Select} label="Names" value=${pattern} set=${setPattern} of=${[["literal", "just"], ["prefix", "that begin with"]]} />
      <${Text} label="Name" value=${name} set=${setName} />
    </div>
    <p class="quiet">No prefix matches what begins with _: name each of these by itself.</p>`}
  <//>`;
}
