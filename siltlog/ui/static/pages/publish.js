/** A form that publishes one record; it may begin as one that is there already. */
import { call, get } from "../app/api.js";
import { html, useEffect, useState } from "../app/dom.js";
import { count, whole } from "../app/format.js";
import { href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Failed } from "../parts/failed.js";
import { Action, Field, PartitionField } from "../parts/form.js";
import { AsCode, asCurl, literal, server } from "../parts/snippet.js";

/** What an acknowledgement may stand for; the first is the topic's own. */
const LEVELS = ["", "written", "wal", "object", "table"];
const KINDS = ["JSON", "text", "base64", "null: a tombstone"];

/** Says what is wrong with a JSON text; empty where nothing is. @param {string} text */
function wrong(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** Gives JSON as it is stored: of a text the text itself, null as a tombstone, of all else what was typed. @param {string} text */
function stored(text) {
  const value = JSON.parse(text);
  return value === null || typeof value === "string" ? value : text.trim();
}

/** Says what a record is published again as. @param {any} record */
function again(record) {
  const text = record.value_base64 ?? record.value;
  const kind = text === null ? KINDS[3] : record.value_base64 !== undefined ? "base64" : wrong(text) || stored(text) !== text ? "text" : "JSON";
  return { kind, text: text ?? "" };
}

/** Reads headers, one a line; `bad` says which line is none. @param {string} text */
function headersOf(text) {
  /** @type {{ key: string, value: string }[]} */
  const pairs = [];
  for (const [at, line] of text.split("\n").entries()) {
    if (!line.trim()) continue;
    const colon = line.indexOf(":");
    if (colon < 1) return { pairs, bad: `Line ${at + 1} of the headers, ${line.trim()}, is no header: write name: value.` };
    pairs.push({ key: line.slice(0, colon), value: line.slice(colon + 1).trimStart() });
  }
  return { pairs, bad: "" };
}

/** @param {{ topic: any, query: URLSearchParams }} props `query` may say a partition and an offset: the record to begin with */
export function Publish({ topic, query }) {
  const lacks = useLacks();
  const [key, setKey] = useState(/** @type {string | null} */ (null));
  const [kind, setKind] = useState("JSON");
  const [text, setText] = useState('{"hello": "world"}');
  const [headers, setHeaders] = useState("");
  const [partition, setPartition] = useState("");
  const [timestamp, setTimestamp] = useState("");
  const [acks, setAcks] = useState("");
  const [keyBytes, setKeyBytes] = useState(/** @type {string | undefined} */ (undefined));
  const [kept, setKept] = useState(/** @type {any[] | null} */ (null));
  const first = useAct(async (/** @type {string} */ from, /** @type {string} */ offset) => {
    const { records } = await get(["v1", "topics", topic.name, "partitions", from, "records"], { offset, max_records: 1 });
    const [record] = records;
    if (record?.offset !== Number(offset)) throw new Error(`There is no record ${from}:${offset} now.`);
    const begun = again(record);
    setKind(begun.kind);
    setText(begun.text);
    setKey(record.key ?? null);
    setKeyBytes(record.key_base64);
    // As they were: a form of lines would change what is repeated or is no text.
    setKept(record.headers.length ? record.headers : null);
    return `${from}:${offset}`;
  });
  useEffect(() => {
    const [from, offset] = [query.get("partition"), query.get("offset")];
    if (from !== null && offset !== null) void first.run(from, offset);
  }, []);
  const bad = kind === "JSON" ? wrong(text) : "";
  const typed = headersOf(headers);
  const sent = kept ?? typed.pairs;
  const record = {
    ...(keyBytes !== undefined ? { key_base64: keyBytes } : key !== null && { key }),
    ...(kind === "base64" ? { value_base64: text } : { value: kind === "text" ? text : null }),
    ...(sent.length > 0 && { headers: sent }),
    ...(partition && { partition: Number(partition) }),
    ...(timestamp && { timestamp }),
  };
  // JSON goes as it was typed: what this browser would write anew may have other digits.
  const body = kind === "JSON" && !bad ? `{"records":[${JSON.stringify(record).replace('"value":null', () => `"value":${text}`)}]}` : JSON.stringify({ records: [record] });
  const path = ["v1", "topics", topic.name, "records"];
  const asked = acks ? { acks } : {};
  const publish = useAct(async () => {
    const answer = await call("POST", path, { body, query: asked });
    return { ...answer.partitions[0], acks: answer.acks };
  });
  const not = lacks("write", "topic", topic.name) || (bad ? `The value is no JSON: ${bad}` : kept ? "" : typed.bad);
  return html`
    <${Failed} problem=${first.problem} />
    ${first.result && html`<p class="note">As record <code>${first.result}</code> was: change what is to be another, and publish. Both stay.</p>`}
    <${Field} label="Key" hint="Records with the same key stay in order. Left out: any partition."><input value=${keyBytes !== undefined ? `base64 ${keyBytes}` : (key ?? "")} readonly=${keyBytes !== undefined} onInput=${(/** @type {any} */ event) => setKey(event.target.value || null)} /><//>
    ${key === "" && html`<p class="quiet">Its key is the empty text. <button type="button" class="link" onClick=${() => setKey(null)}>Without a key</button></p>`}
    <fieldset class="choice"><legend>Value</legend>
      ${KINDS.map((each) => html`<label key=${each}><input type="radio" name="kind" checked=${each === kind} onChange=${() => setKind(each)} />${each}</label>`)}
    </fieldset>
    ${kind !== KINDS[3] &&
    html`<${Field} label=${kind === "JSON" ? "JSON" : kind === "text" ? "Text" : "Base64"} hint=${bad}><textarea value=${text} aria-invalid=${bad ? "true" : "false"} spellcheck=${false} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea><//>`}
    ${kept
      ? html`<p class="quiet">With its ${count(kept.length, "header")}. <button type="button" class="link" onClick=${() => setKept(null)}>Without</button></p>`
      : html`<${Field} label="Headers" hint=${typed.bad || "One a line, as name: value."}><textarea value=${headers} aria-invalid=${typed.bad ? "true" : "false"} spellcheck=${false} onInput=${(/** @type {any} */ event) => setHeaders(event.target.value)}></textarea><//>`}
    <${PartitionField} of=${topic.partitions} value=${partition} none="by the key" set=${setPartition} />
    <${Field} label="Time" hint="RFC 3339, such as 2026-11-21T07:36:00Z. Left out: now."><input value=${timestamp} onInput=${(/** @type {any} */ event) => setTimestamp(event.target.value)} /><//>
    <${Field} label="Answered at" hint="What the answer waits for: written to the log, synced on the disk (wal), in the object store, or in the table.">
      <select value=${acks} onChange=${(/** @type {any} */ event) => setAcks(event.target.value)}>
        ${LEVELS.map((level) => html`<option key=${level} value=${level}>${level || "as the topic says"}</option>`)}
      </select>
    <//>
    <${Failed} problem=${publish.problem} />
    <p class="actions">
      <${Action} kind="main" busy=${publish.busy} not=${not} act=${publish.run}>Publish<//>
      <span role="status">${publish.result &&
      html`Acknowledged at <a href=${href(["topics", topic.name, "records"], { partition: publish.result.partition, offset: publish.result.first_offset })}>${publish.result.partition}:${whole(publish.result.first_offset)}</a>, as ${publish.result.acks}`}</span>
      ${!bad && (kept || !typed.bad) && html`<${AsCode} shown=${{
        curl: asCurl({ method: "POST", path, query: asked, body }),
        python: asProducer(topic.name, acks, kind === "JSON" ? { value: stored(text) } : record, record),
      }} />`}
    </p>
  `;
}

/**
 * Writes the program that sends the same record.
 * @param {string} topic @param {string} acks empty for the topic's own @param {{ value?: string | null, value_base64?: string }} value @param {any} record as it is sent, without what `value` says
 */
function asProducer(topic, acks, value, record) {
  const bytes = (/** @type {string} */ base64) => `base64.b64decode(${literal(base64)})`;
  const written = (/** @type {any} */ of) => (of.value_base64 === undefined ? literal(of.value) : bytes(of.value_base64));
  const headers = (record.headers ?? []).map((/** @type {any} */ header) => `(${literal(header.key)}, ${written(header)})`);
  const given = [
    literal(topic),
    written(value),
    record.key_base64 !== undefined ? `key=${bytes(record.key_base64)}` : record.key !== undefined && `key=${literal(record.key)}`,
    headers.length > 0 && `headers=[${headers.join(", ")}]`,
    record.partition !== undefined && `partition=${record.partition}`,
    record.timestamp !== undefined && `timestamp=${literal(record.timestamp)}`,
  ].filter(Boolean);
  const call = `producer.send(${given.join(", ")})`;
  return `${call.includes("base64.b64decode(") ? "import base64\n\n" : ""}from siltlog import Producer\n\nwith Producer(${literal(server())}${acks && `, acks=${literal(acks)}`}) as producer:\n    ${call}`;
}
