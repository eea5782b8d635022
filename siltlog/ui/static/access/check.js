/** May somebody do something, and which entry or role decides that? */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { useLacks } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Failed } from "../parts/failed.js";
import { Action, Badge } from "../parts/form.js";
import { AsCode, asCurl } from "../parts/snippet.js";
import { CLUSTER, Principal, RIGHTS, Select, Text } from "./words.js";

const PATH = ["v1", "access", "check"];

/** @param {{ document: any }} props */
export function Check({ document }) {
  const refused = useLacks()("admin", "cluster");
  const [principal, setPrincipal] = useState("");
  const [groups, setGroups] = useState("");
  const [kind, setKind] = useState("topic");
  const [operation, setOperation] = useState("read");
  const [name, setName] = useState("");
  const right = RIGHTS[kind].includes(operation) ? operation : RIGHTS[kind][0];
  const named = groups.split(",").map((each) => each.trim()).filter(Boolean);
  const body = { principal, operation: right, resource: kind === CLUSTER ? CLUSTER : `${kind}:${name}`, ...(named.length > 0 && { groups: named }) };
  const check = useAct(async () => ({ ...(await call("POST", PATH, { body })), body }));
  const not = refused || (principal === "" ? "Say who." : kind !== CLUSTER && name === "" ? `Say which ${kind}.` : "");
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (!not) void check.run();
  }
  return html`
    <p class="quiet">Asks the server as it would decide. Nothing is done, and nothing is recorded.</p>
    <form onSubmit=${submit}>
      <${Principal} label="Who" document=${document} value=${principal} set=${setPrincipal} hint="key:NAME, user:SUBJECT, cert:NAME, or * for somebody to whom nothing else was given." />
      ${principal.startsWith("user:") && html`<${Text} label="whose token names the groups" value=${groups} set=${setGroups} hint="With a comma between them." />`}
      <div class="row">
        <${Select} label="May it" value=${right} set=${setOperation} of=${RIGHTS[kind]} />
        <${Select} label="what" value=${kind} set=${setKind} of=${["topic", "group", "cluster"]} />
        ${kind !== CLUSTER && html`<${Text} label="called" value=${name} set=${setName} />`}
        <${Action} kind="main" type="submit" busy=${check.busy} not=${not}>Ask<//>
      </div>
    </form>
    <${Failed} problem=${check.problem} />
    <div role="status">${check.result &&
    html`<p class="decision"><${Badge} good=${check.result.allowed}>${check.result.allowed ? "Yes" : "No"}<//>${`: ${check.result.body.principal} may ${check.result.allowed ? "" : "not "}${check.result.body.operation} ${check.result.body.resource.replace(":", " ")}; ${check.result.because || "nothing allows it"}.`}</p>`}</div>
    ${!not && html`<p><${AsCode} shown=${{ curl: asCurl({ method: "POST", path: PATH, body }) }} /></p>`}
  `;
}
