/** The files of a topic's table: their health, what jobs would do with them, the rows of one. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { asSent, isNumber } from "../app/exact.js";
import { NOTHING, bytes, count, duration, percent, time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct, useGet } from "../app/use.js";
import { Confirm } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action } from "../parts/form.js";
import { AsCode, asCurl, withAdmin } from "../parts/snippet.js";
import { LongTable, Table } from "../parts/table.js";
import { keyOf, preview } from "../parts/value.js";

const EACH_MS = 10_000;
const FILES = 50;
const ROWS = 50;
const COLUMNS_MAX = 12;

/** @param {{ name: string, query: URLSearchParams }} props */
export function Files({ name, query }) {
  const after = query.get("after") ?? "";
  const chosenZone = useStore(zone);
  const health = useGet(["v1", "topics", name, "health"], {}, EACH_MS);
  const files = useGet(["v1", "topics", name, "files"], { after, limit: FILES });
  const place = ["topics", name, "files"];
  if (query.has("first")) return html`<${Rows} name=${name} query=${query} />`;
  const columns = [
    { name: "partition", title: "Partition", cell: (/** @type {any} */ file) => file.partition },
    { name: "offsets", title: "Offsets", cell: (/** @type {any} */ file) => html`<a href=${href(place, { partition: file.partition, first: file.first_offset, last: file.last_offset })}>${whole(file.first_offset)} to ${whole(file.last_offset)}</a>` },
    { name: "rows", title: "Rows", number: true, cell: (/** @type {any} */ file) => whole(file.rows) },
    { name: "bytes", title: "Size", number: true, cell: (/** @type {any} */ file) => bytes(file.bytes) },
    { name: "small", title: "Small", cell: (/** @type {any} */ file) => (file.small ? "small" : "") },
    { name: "compacted", title: "Written by", cell: (/** @type {any} */ file) => (file.compacted ? "compaction" : "a flush") },
    { name: "written", title: "Written", cell: (/** @type {any} */ file) => time(file.written_at, chosenZone).slice(0, 19) },
  ];
  return html`
    <${Loaded} of=${health}>${(/** @type {any} */ said) => html`<${Health} said=${said} /><${Jobs} said=${said} />`}<//>
    <h2>Files</h2>
    <${Loaded} of=${files}>${(/** @type {any} */ page) => html`
      <${Table} caption="Files" columns=${columns} rows=${page.files} id=${(/** @type {any} */ file) => `${file.partition}:${file.first_offset}`} empty="The table has no file yet." />
      <p class="actions">
        ${after && html`<a href=${href(place)}>First page</a>`}
        ${page.next && html`<a href=${href(place, { after: page.next })}>Next ${FILES}</a>`}
      </p>`}
    <//>
  `;
}

/** @param {{ said: any }} props */
function Health({ said }) {
  const { table } = said;
  const facts = [
    ["Version", whole(table.version)],
    ["Committed", table.age_ms === null ? NOTHING : `${duration(table.age_ms)} ago`],
    ["Oldest record that waits", duration(table.lag_ms)],
    ["Small files", `${whole(table.small_files)} of ${whole(table.files)} (${percent(table.small_files_share)})`],
    ["Checkpoint", table.checkpoint_version === null ? NOTHING : `version ${whole(table.checkpoint_version)}${table.checkpoint_age_ms === null ? "" : `, ${duration(table.checkpoint_age_ms)} ago`}`],
  ];
  return html`
    ${said.problems.length > 0 &&
    html`<ul class="needs">${said.problems.map((/** @type {any} */ problem) => html`<li key=${problem.detail} class=${problem.severity}><b aria-hidden="true">!</b>${problem.detail}</li>`)}</ul>`}
    <dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
  `;
}

/** What compaction would merge and retention would remove now, and having them run. @param {{ said: any }} props */
function Jobs({ said }) {
  const { compaction, retention } = said;
  const [shown, setShown] = useState(false);
  return html`
    <h2>What jobs would do now</h2>
    <p>Compaction: ${compaction === null ? "cannot be planned now." : compaction.files === 0 && compaction.key_partitions === 0 ? "nothing to do." : merging(compaction)}
      ${" "}<${RunJob} job="compact" doing="Compact" what="Compaction merges small files of every topic that has some, this one among them; readers notice nothing." /></p>
    <p>Retention: ${retention === null ? "cannot be planned now." : removal(retention)}
      ${" "}${retention !== null && retention.log_start_offsets.length > 0 && html`<button type="button" class="link" aria-expanded=${shown} onClick=${() => setShown(!shown)}>by partition</button>`}
      ${" "}<${RunJob} job="retain" doing="Remove" what="Retention removes, of every topic, what its limits no longer keep. Nothing brings that back but a backup." /></p>
    ${shown && retention !== null && html`<${LongTable} caption="Where the log start would move" columns=${STARTS} rows=${retention.log_start_offsets} id=${(/** @type {any} */ row) => String(row.partition)} empty="" />`}
  `;
}

const STARTS = [
  { name: "partition", title: "Partition", cell: (/** @type {any} */ row) => row.partition },
  { name: "start", title: "New log start", number: true, cell: (/** @type {any} */ row) => whole(row.log_start_offset) },
];

/** @param {any} plan */
function merging(plan) {
  const files = plan.files === 0 ? "" : `${count(plan.files, "file")} of ${bytes(plan.bytes)} would become ${whole(plan.files_after)}`;
  const keys = plan.key_partitions === 0 ? "" : `${count(plan.key_partitions, "partition")} may be due for key compaction`;
  return `${[files, keys].filter(Boolean).join("; ")}.`;
}

/** @param {any} plan */
function removal(plan) {
  const limits = [["time", plan.by_time], ["size", plan.by_bytes], ["count", plan.by_records]].filter(([, by]) => by !== null);
  if (limits.length === 0) return "this topic keeps everything.";
  if (plan.files === 0) return `nothing is past its limits (by ${limits.map(([name]) => name).join(", ")}).`;
  const each = limits.filter(([, by]) => by.files > 0).map(([name, by]) => `${count(by.rows, "record")} by ${name}`);
  return `${count(plan.files, "file")} with ${count(plan.rows, "record")}, ${bytes(plan.bytes)}, would be removed (${each.join(", ")}).`;
}

/** @param {{ job: string, doing: string, what: string }} props */
function RunJob({ job, doing, what }) {
  const lacks = useLacks();
  const [asking, setAsking] = useState(false);
  const path = ["v1", "jobs", job, "runs"];
  const begin = useAct(async () => {
    const begun = await call("POST", path);
    setAsking(false);
    return begun;
  });
  return html`<${Action} kind="link" not=${lacks("alter", "cluster")} act=${() => setAsking(true)}>${doing} now …<//>
    ${begin.result && html` <span role="status">It runs: <a href=${href(["jobs"])}>see the jobs</a></span>`}
    ${asking &&
    html`<${Confirm} title=${`Run ${job} now`} word=${job} doing="Run it" busy=${begin.busy} act=${begin.run} close=${() => setAsking(false)}>
      <p>${what}</p>
      <p><${AsCode} shown=${{ curl: asCurl({ method: "POST", path }), python: withAdmin(`begin_job(${JSON.stringify(job)})`) }} /></p>
      <${Failed} problem=${begin.problem} />
    <//>`}`;
}

/** The rows of one file as a table, read by their offsets. @param {{ name: string, query: URLSearchParams }} props */
function Rows({ name, query }) {
  const lacks = useLacks();
  const chosenZone = useStore(zone);
  const asked = (/** @type {string} */ of) => Number(query.get(of) ?? 0);
  const [partition, first, last] = [asked("partition"), asked("first"), asked("last")];
  const from = query.has("from") ? asked("from") : first;
  const place = ["topics", name, "files"];
  const lacking = lacks("read", "topic", name);
  const read = useGet(lacking ? null : ["v1", "topics", name, "partitions", String(partition), "records"], { offset: from, max_records: ROWS, isolation: "table" });
  const heading = html`<h2>Rows of the file with the offsets ${partition}:${whole(first)} to ${whole(last)}</h2><p><a href=${href(place)}>All files</a></p>`;
  if (lacking) return html`${heading}<p class="note">${lacking}</p>`;
  return html`${heading}<${Loaded} of=${read}>${(/** @type {any} */ page) => {
    const rows = page.records.filter((/** @type {any} */ record) => record.offset <= last).map(embedded);
    return html`
      <${Table} caption="Rows" columns=${columnsOf(rows, chosenZone)} rows=${rows} id=${(/** @type {any} */ record) => String(record.offset)} empty="There is no row at these offsets now: the file was merged, or its records are gone." />
      <p class="actions">
        ${from > first && html`<a href=${href(place, { partition, first, last })}>First page</a>`}
        ${page.next_offset <= last && rows.length > 0 && html`<a href=${href(place, { partition, first, last, from: page.next_offset })}>Next ${ROWS}</a>`}
        ${rows.length > 0 && html`<a href=${href(["topics", name, "records"], { partition, offset: from })}>as records</a>`}
      </p>`;
  }}<//>`;
}

/** A column for each member of the values, where these are objects. @param {any[]} rows @param {string} chosenZone */
function columnsOf(rows, chosenZone) {
  const fields = new Set(rows.flatMap((record) => (isObject(record.value) ? Object.keys(record.value) : [])));
  const shown = [...fields].slice(0, COLUMNS_MAX);
  const others = rows.some((record) => !isObject(record.value)) || fields.size > shown.length;
  return [
    { name: "offset", title: "Offset", number: true, cell: (/** @type {any} */ record) => whole(record.offset) },
    { name: "time", title: "Time", cell: (/** @type {any} */ record) => time(record.timestamp, chosenZone) },
    { name: "key", title: "Key", cell: (/** @type {any} */ record) => html`<span class="cut">${keyOf(record).slice(0, 80)}</span>` },
    ...shown.map((field) => ({
      name: `field ${field}`,
      title: field,
      number: rows.every((record) => !isObject(record.value) || isNumber(member(record.value, field))),
      cell: (/** @type {any} */ record) => html`<span class="cut">${isObject(record.value) ? text(member(record.value, field)) : ""}</span>`,
    })),
    ...(others ? [{ name: "value", title: "Value", wide: true, cell: (/** @type {any} */ record) => html`<span class="cut mono">${record.value_base64 === undefined && typeof record.value !== "string" && record.value !== null ? text(record.value) : preview(record)}</span>` }] : []),
  ];
}

/** Gives a record with its value embedded where that is JSON. @param {any} record */
function embedded(record) {
  if (typeof record.value !== "string") return record;
  try {
    // A null in JSON is no tombstone.
    return { ...record, value: asSent(record.value) ?? record.value };
  } catch {
    return record;
  }
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isNumber(value);
}

/** @param {any} value an object @param {string} field */
function member(value, field) {
  return Object.hasOwn(value, field) ? value[field] : undefined;
}

/** Writes a member of a value in one short line. @param {unknown} value */
function text(value) {
  if (value === undefined) return NOTHING;
  return (typeof value === "string" ? value : JSON.stringify(value)).slice(0, 300);
}
