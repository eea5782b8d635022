/** A form that publishes one record. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { whole } from "../app/format.js";
import { missing } from "../app/rights.js";
import { href } from "../app/route.js";
import { useMay } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Failed } from "../parts/failed.js";
import { Action, Field } from "../parts/form.js";
import { AsCode, asCurl, literal } from "../parts/snippet.js";

const KINDS = ["JSON", "text", "null: a tombstone"];

/** Says what is wrong with a JSON text; empty where nothing is. @param {string} text */
function wrong(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** @param {{ topic: any }} props */
export function Publish({ topic }) {
  const may = useMay();
  const [key, setKey] = useState("");
  const [kind, setKind] = useState("JSON");
  const [text, setText] = useState('{"hello": "world"}');
  const [headers, setHeaders] = useState("");
  const [partition, setPartition] = useState("");
  const bad = kind === "JSON" ? wrong(text) : "";
  const named = Object.fromEntries(headers.split("\n").filter(Boolean).map((line) => line.split(/:\s*(.*)/s).slice(0, 2)));
  const record = {
    ...(key && { key }),
    value: kind === "JSON" ? (bad ? null : JSON.parse(text)) : kind === "text" ? text : null,
    ...(headers.trim() && { headers: named }),
    ...(partition && { partition: Number(partition) }),
  };
  const path = ["v1", "topics", topic.name, "records"];
  const publish = useAct(async () => (await call("POST", path, { body: { records: [record] } })).partitions[0]);
  const not = !may("write", "topic", topic.name) ? missing("write", "topic", topic.name) : bad ? `The value is no JSON: ${bad}` : "";
  return html`
    <${Field} label="Key" hint="Records with the same key stay in order. Left out: any partition."><input value=${key} onInput=${(/** @type {any} */ event) => setKey(event.target.value)} /><//>
    <fieldset class="choice"><legend>Value</legend>
      ${KINDS.map((each) => html`<label key=${each}><input type="radio" name="kind" checked=${each === kind} onChange=${() => setKind(each)} />${each}</label>`)}
    </fieldset>
    ${kind !== KINDS[2] &&
    html`<${Field} label=${kind === "JSON" ? "JSON" : "Text"} hint=${bad}><textarea value=${text} aria-invalid=${bad ? "true" : "false"} spellcheck="false" onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea><//>`}
    <${Field} label="Headers" hint="One a line, as name: value."><textarea value=${headers} spellcheck="false" onInput=${(/** @type {any} */ event) => setHeaders(event.target.value)}></textarea><//>
    <${Field} label="Partition"><select value=${partition} onChange=${(/** @type {any} */ event) => setPartition(event.target.value)}>
      <option value="">by the key</option>
      ${topic.offsets.map((/** @type {any} */ each) => html`<option key=${each.partition} value=${String(each.partition)}>${each.partition}</option>`)}
    </select><//>
    <${Failed} problem=${publish.problem} />
    <p class="actions">
      <${Action} kind="main" busy=${publish.busy} not=${not} act=${publish.run}>Publish<//>
      <span role="status">${publish.result &&
      html`Acknowledged at <a href=${href(["topics", topic.name, "records"], { partition: publish.result.partition, offset: publish.result.first_offset })}>${publish.result.partition}:${whole(publish.result.first_offset)}</a>`}</span>
      <${AsCode} shown=${{
        curl: asCurl({ method: "POST", path, body: { records: [record] } }),
        python: `from siltlog import Producer\n\nwith Producer(${JSON.stringify(location.origin)}) as producer:\n    producer.send(${literal(topic.name)}, ${literal(record.value)}${key ? `, key=${literal(key)}` : ""})`,
      }} />
    </p>
  `;
}
