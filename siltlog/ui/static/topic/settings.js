/** The settings of a topic: each value, who said it, and changing it. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { bytes, duration } from "../app/format.js";
import { useLacks } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Dialog } from "../parts/dialog.js";
import { Failed } from "../parts/failed.js";
import { Action, Field } from "../parts/form.js";
import { AsCode, asCurl, literal, withAdmin } from "../parts/snippet.js";
import { Table } from "../parts/table.js";

/** Who said a value, in words. */
const SOURCES = { default: "the default", server: "the server's settings", topic: "this topic" };
/** Settings that are one of a few words. @type {Record<string, string[]>} */
const WORDS = {
  acks: ["none", "written", "wal", "object", "table"],
  compression: ["zstd", "lz4", "snappy", "gzip", "none"],
  "fetch.compression": ["none", "lz4", "zstd", "snappy", "gzip"],
  "cleanup.policy": ["delete", "compact", "compact,delete"],
  "timestamp.type": ["create", "append"],
};

/** Settings that are chosen when a topic is made. */
const CHOSEN = new Set(["partitioner"]);

/** Says what a number means, where its unit hides that. @param {string} name @param {unknown} value */
function meaning(name, value) {
  if (typeof value !== "number") return "";
  if (value === -1) return "no limit";
  if (name.endsWith(".ms")) return duration(value);
  if (name.endsWith(".bytes")) return bytes(value);
  return "";
}

/** Says what a number counts, before it is one. @param {string} name */
function unit(name) {
  if (name.endsWith(".ms")) return "A whole number of milliseconds: 86400000 is a day.";
  if (name.endsWith(".bytes")) return "A whole number of bytes.";
  return "";
}

/** @param {{ topic: any, again: () => void }} props */
export function Settings({ topic, again }) {
  const lacks = useLacks();
  const [changing, setChanging] = useState(/** @type {any} */ (null));
  const not = lacks("alter", "topic", topic.name);
  const rows = Object.entries(topic.config).map(([name, entry]) => ({ name, .../** @type {any} */ (entry) }));
  const columns = [
    { name: "name", title: "Setting", cell: (/** @type {any} */ row) => html`<code>${row.name}</code>` },
    { name: "value", title: "Value", cell: (/** @type {any} */ row) => String(row.value) },
    { name: "meaning", title: "Means", cell: (/** @type {any} */ row) => html`<span class="quiet">${meaning(row.name, row.value)}</span>` },
    { name: "source", title: "Set by", cell: (/** @type {any} */ row) => SOURCES[/** @type {keyof typeof SOURCES} */ (row.source)] ?? row.source },
    { name: "change", title: "Change", cell: (/** @type {any} */ row) => CHOSEN.has(row.name) ? html`<span class="quiet">chosen when the topic is made</span>` : html`<${Action} kind="link" not=${not} act=${() => setChanging(row)}>Change …<span class="unseen"> ${row.name}</span><//>` },
  ];
  return html`
    <${Table} caption="Settings" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.name} empty="" />
    <p class="quiet">The table is at <code>${topic.table_uri}</code>. What each setting does is said by <code>silt topic alter --help</code> and in the
      documentation.</p>
    ${changing && html`<${Changing} topic=${topic} entry=${changing} done=${again} close=${() => setChanging(null)} />`}
  `;
}

/** @param {{ topic: any, entry: any, done: () => void, close: () => void }} props */
function Changing({ topic, entry, done, close }) {
  const [text, setText] = useState(String(entry.value));
  const value = typeof entry.value === "number" && /^-?\d+$/.test(text) ? Number(text) : text;
  const path = ["v1", "topics", topic.name];
  const code = (/** @type {string | number | null} */ to) => ({
    curl: asCurl({ method: "PATCH", path, body: { config: { [entry.name]: to } } }),
    python: withAdmin(`alter_topic(${literal(topic.name)}, config=${literal({ [entry.name]: to })})`),
  });
  const change = useAct(async (/** @type {string | number | null} */ to) => {
    await call("PATCH", path, { body: { config: { [entry.name]: to } } });
    done();
    close();
  });
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    void change.run(value);
  }
  return html`<${Dialog} title=${`Change ${entry.name}`} close=${close}>
    <form onSubmit=${submit}>
      <${Field} label=${`${entry.name} of ${topic.name}`} hint=${meaning(entry.name, value) || unit(entry.name)}>
        ${WORDS[entry.name]
          ? html`<select value=${text} onChange=${(/** @type {any} */ event) => setText(event.target.value)}>${WORDS[entry.name].map((word) => html`<option key=${word} value=${word}>${word}</option>`)}</select>`
          : html`<input required autocomplete="off" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />`}
      <//>
      <p class="quiet">Publishing goes on meanwhile.</p>
      <${Failed} problem=${change.problem} />
      <p class="actions">
        <button type="submit" class="main" disabled=${change.busy}>Change it</button>
        <${AsCode} shown=${code(value)} />
        ${entry.source === "topic" && html`<${Action} busy=${change.busy} act=${() => change.run(null)}>Back to what the server says<//>
          <${AsCode} shown=${code(null)} of="going back" />`}
      </p>
    </form>
  <//>`;
}
