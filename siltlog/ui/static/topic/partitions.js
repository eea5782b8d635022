/** The partitions of a topic: their bounds, deleting what is below an offset, having more of them. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { bytes, count, whole } from "../app/format.js";
import { href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useAct } from "../app/use.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Failed } from "../parts/failed.js";
import { Action, Field } from "../parts/form.js";
import { AsCode, asCurl, withAdmin } from "../parts/snippet.js";
import { LongTable } from "../parts/table.js";

const PARTITIONS_MAX = 10_000;

/** @param {{ topic: any, again: () => void }} props */
export function Partitions({ topic, again }) {
  const lacks = useLacks();
  const [deleting, setDeleting] = useState(/** @type {any} */ (null));
  const [growing, setGrowing] = useState(false);
  const notDelete = lacks("delete", "topic", topic.name);
  const notAlter = lacks("alter", "topic", topic.name);
  const number = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(row: any) => number | undefined} */ of, write = whole) => ({
    name, title, number: true, cell: (/** @type {any} */ row) => write(of(row)),
  });
  const columns = [
    { name: "partition", title: "Partition", cell: (/** @type {any} */ row) => html`<a href=${href(["topics", topic.name, "records"], { partition: row.partition })}>${row.partition}</a>` },
    number("start", "Log start", (row) => row.log_start_offset),
    number("table", "In the table up to", (row) => row.table_offset),
    number("end", "High watermark", (row) => row.high_watermark),
    number("records", "Offsets", (row) => row.high_watermark - row.log_start_offset),
    number("waiting", "Not in the table yet", (row) => row.high_watermark - row.table_offset),
    number("bytes", "Of the table", (row) => row.bytes, bytes),
    number("head", "Head from", (row) => row.head_start_offset),
    number("wal", "Of the WAL", (row) => row.wal_bytes, bytes),
    number("segments", "In segments", (row) => row.wal_segments),
    { name: "delete", title: "Records", cell: (/** @type {any} */ row) => html`<${Action} kind="link" act=${() => setDeleting(row)}
        not=${notDelete || (row.high_watermark === row.log_start_offset ? "It has no record." : "")}>Delete …<span class="unseen"> of partition ${row.partition}</span><//>` },
  ];
  return html`
    <${LongTable} caption="Partitions" columns=${columns} rows=${topic.offsets} id=${(/** @type {any} */ row) => String(row.partition)} empty="" />
    <p class="actions"><${Action} not=${notAlter} act=${() => setGrowing(true)}>More partitions …<//></p>
    ${deleting && html`<${DeletingRecords} topic=${topic} bounds=${deleting} done=${again} close=${() => setDeleting(null)} />`}
    ${growing && html`<${Growing} topic=${topic} done=${again} close=${() => setGrowing(false)} />`}
  `;
}

/** @param {{ topic: any, bounds: any, done: () => void, close: () => void }} props */
function DeletingRecords({ topic, bounds, done, close }) {
  const [before, setBefore] = useState(String(bounds.high_watermark));
  const offset = /^\d+$/.test(before) ? Number(before) : NaN;
  const gone = offset - bounds.log_start_offset;
  const path = ["v1", "topics", topic.name, "partitions", String(bounds.partition), "records"];
  const query = { before_offset: before, topic_id: topic.topic_id };
  const remove = useAct(async () => {
    await call("DELETE", path, { query });
    done();
    close();
  });
  return html`<${Confirm} title=${`Delete records of partition ${bounds.partition}`} word=${topic.name} doing="Delete them" busy=${remove.busy} act=${remove.run} close=${close}>
    <${Field} label="The first offset to keep" hint=${`From ${whole(bounds.log_start_offset)}, which deletes nothing, to ${whole(bounds.high_watermark)}, which deletes all that there is now.`}>
      <input inputmode="numeric" required pattern="[0-9]+" value=${before} onInput=${(/** @type {any} */ event) => setBefore(event.target.value)} />
    <//>
    <p>${gone > 0 ? html`<strong>${count(gone, "offset")}</strong> of ${topic.name}, partition ${bounds.partition}, ${gone === 1 ? "is" : "are"} deleted for good.` : "Nothing is deleted."}
      Groups that have not read so far go on where their reset policy says.</p>
    <p><${AsCode} shown=${{
      curl: asCurl({ method: "DELETE", path, query: { before_offset: before } }),
      python: withAdmin(`delete_records(${JSON.stringify(topic.name)}, ${bounds.partition}, ${Number.isNaN(offset) ? JSON.stringify(before) : offset})`),
    }} /></p>
    <${Failed} problem=${remove.problem} />
  <//>`;
}

/** @param {{ topic: any, done: () => void, close: () => void }} props */
function Growing({ topic, done, close }) {
  const [wanted, setWanted] = useState(String(topic.partitions + 1));
  const body = { partitions: Number(wanted) };
  const path = ["v1", "topics", topic.name];
  const grow = useAct(async () => {
    await call("PATCH", path, { body });
    done();
    close();
  });
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    void grow.run();
  }
  return html`<${Dialog} title="More partitions" close=${close}>
    <form onSubmit=${submit}>
      <${Field} label="Partitions" hint=${`It has ${whole(topic.partitions)}, and never fewer again.`}>
        <input type="number" required min=${topic.partitions + 1} max=${PARTITIONS_MAX} value=${wanted} onInput=${(/** @type {any} */ event) => setWanted(event.target.value)} />
      <//>
      <p>From then on a key may go to another partition than before: its later records are not in order with its earlier ones.</p>
      <${Failed} problem=${grow.problem} />
      <p class="actions">
        <button type="submit" class="main" disabled=${grow.busy}>Have them</button>
        <${AsCode} shown=${{
          curl: asCurl({ method: "PATCH", path, body }),
          python: withAdmin(`alter_topic(${JSON.stringify(topic.name)}, partitions=${body.partitions})`),
        }} />
      </p>
    </form>
  <//>`;
}
