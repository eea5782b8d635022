/** One topic: its records, partitions, table, settings, and publishing to it. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, bytes, count, duration, percent, short, time, whole } from "../app/format.js";
import { useLive } from "../app/live.js";
import { zone } from "../app/prefs.js";
import { missing } from "../app/rights.js";
import { go, href } from "../app/route.js";
import { useMay } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct, useGet } from "../app/use.js";
import { Confirm } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Heading, Tabs } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { Publish } from "./publish.js";
import { Records } from "./records.js";

const EACH_MS = 5_000;
const FILES = 50;
/** @type {[string, string][]} */
const TABS = [
  ["records", "Records"],
  ["partitions", "Partitions"],
  ["files", "Files"],
  ["settings", "Settings"],
  ["publish", "Publish"],
];

/** @param {{ path: string[], query: URLSearchParams }} props */
export function Topic({ path, query }) {
  const name = path[1];
  const tab = path[2] ?? "records";
  const described = useGet(["v1", "topics", name], {}, EACH_MS);
  const live = useLive("topics")?.topics.find((/** @type {any} */ topic) => topic.name === name);
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["topics"])}>Topics</a> › ${name}`}>
      ${described.answer && html`<${Deleting} name=${name} />`}
    <//>
    <${Loaded} of=${described}>${(/** @type {any} */ topic) => html`
      <p class="quiet">${[
        `${short(live?.records ?? topic.records)} records`,
        bytes(live?.bytes ?? topic.bytes),
        count(topic.files, "file"),
        count(topic.partitions, "partition"),
        live && `${short(live.records_in_per_s)} records/s in`,
        topic.owner && `at ${topic.owner}`,
      ].filter(Boolean).join(" · ")}</p>
      <${Tabs} label="What of the topic" tabs=${TABS} chosen=${tab} to=${(/** @type {string} */ each) => href(["topics", name, each])} />
      ${tab === "records" && html`<${Records} key=${name} topic=${topic} query=${query} />`}
      ${tab === "partitions" && html`<${Partitions} topic=${topic} />`}
      ${tab === "files" && html`<${Files} name=${name} />`}
      ${tab === "settings" && html`<${Settings} topic=${topic} />`}
      ${tab === "publish" && html`<${Publish} topic=${topic} />`}`}
    <//>
  `;
}

/** @param {{ name: string }} props */
function Deleting({ name }) {
  const may = useMay();
  const [asking, setAsking] = useState(false);
  const remove = useAct(async () => {
    await call("DELETE", ["v1", "topics", name]);
    go(["topics"]);
  });
  return html`<${Action} kind="danger" not=${may("delete", "topic", name) ? "" : missing("delete", "topic", name)} act=${() => setAsking(true)}>Delete …<//>
    ${asking &&
    html`<${Confirm} title="Delete the topic" word=${name} doing="Delete it" busy=${remove.busy} act=${remove.run} close=${() => setAsking(false)}>
      <p>All records of <strong>${name}</strong> and its table are deleted. Nothing brings them back but a backup.</p>
      <${Failed} problem=${remove.problem} />
    <//>`}`;
}

/** @param {{ topic: any }} props */
function Partitions({ topic }) {
  const number = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(row: any) => number} */ of) => ({
    name, title, number: true, cell: (/** @type {any} */ row) => whole(of(row)),
  });
  const columns = [
    { name: "partition", title: "Partition", cell: (/** @type {any} */ row) => html`<a href=${href(["topics", topic.name, "records"], { partition: row.partition })}>${row.partition}</a>` },
    number("start", "Log start", (row) => row.log_start_offset),
    number("table", "In the table up to", (row) => row.table_offset),
    number("end", "High watermark", (row) => row.high_watermark),
    number("records", "Offsets", (row) => row.high_watermark - row.log_start_offset),
    number("waiting", "Not in the table yet", (row) => row.high_watermark - row.table_offset),
  ];
  return html`<${Table} caption="Partitions" columns=${columns} rows=${topic.offsets} id=${(/** @type {any} */ row) => String(row.partition)} empty="" />`;
}

/** @param {{ name: string }} props */
function Files({ name }) {
  const chosenZone = useStore(zone);
  const [after, setAfter] = useState("");
  const health = useGet(["v1", "topics", name, "health"], {}, EACH_MS * 2);
  const files = useGet(["v1", "topics", name, "files"], { after, limit: FILES });
  const columns = [
    { name: "partition", title: "Partition", cell: (/** @type {any} */ file) => file.partition },
    { name: "offsets", title: "Offsets", cell: (/** @type {any} */ file) => html`<a href=${href(["topics", name, "records"], { partition: file.partition, offset: file.first_offset })}>${whole(file.first_offset)} to ${whole(file.last_offset)}</a>` },
    { name: "rows", title: "Rows", number: true, cell: (/** @type {any} */ file) => whole(file.rows) },
    { name: "bytes", title: "Size", number: true, cell: (/** @type {any} */ file) => bytes(file.bytes) },
    { name: "small", title: "Small", cell: (/** @type {any} */ file) => (file.small ? "small" : "") },
    { name: "written", title: "Written", cell: (/** @type {any} */ file) => time(file.written_at, chosenZone).slice(0, 19) },
  ];
  return html`
    <${Loaded} of=${health}>${(/** @type {any} */ said) => html`<${Health} said=${said} />`}<//>
    <h2>Files</h2>
    <${Loaded} of=${files}>${(/** @type {any} */ page) => html`
      <${Table} caption="Files" columns=${columns} rows=${page.files} id=${(/** @type {any} */ file) => `${file.partition}:${file.first_offset}`} empty="The table has no file yet." />
      <p class="actions">
        ${after && html`<button type="button" onClick=${() => setAfter("")}>First page</button>`}
        ${page.next && html`<button type="button" onClick=${() => setAfter(page.next)}>Next ${FILES}</button>`}
      </p>`}
    <//>
  `;
}

/** @param {{ said: any }} props */
function Health({ said }) {
  const { table } = said;
  const facts = [
    ["Version", table === null ? NOTHING : whole(table.version)],
    ["Committed", table?.age_ms === null ? NOTHING : `${duration(table?.age_ms)} ago`],
    ["Oldest record that waits", duration(table?.lag_ms)],
    ["Small files", `${whole(table?.small_files)} of ${whole(table?.files)} (${percent(table?.small_files_share)})`],
    ["Checkpoint", table?.checkpoint_version === null ? NOTHING : `version ${whole(table?.checkpoint_version)}`],
  ];
  return html`
    ${said.problems.length > 0 &&
    html`<ul class="needs">${said.problems.map((/** @type {any} */ problem) => html`<li key=${problem.detail} class=${problem.severity}><b aria-hidden="true">!</b>${problem.detail}</li>`)}</ul>`}
    <dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
  `;
}

/** @param {{ topic: any }} props */
function Settings({ topic }) {
  const rows = Object.entries(topic.config).map(([name, entry]) => ({ name, .../** @type {any} */ (entry) }));
  const columns = [
    { name: "name", title: "Setting", cell: (/** @type {any} */ row) => html`<code>${row.name}</code>` },
    { name: "value", title: "Value", cell: (/** @type {any} */ row) => String(row.value) },
    { name: "source", title: "Said by", cell: (/** @type {any} */ row) => row.source },
  ];
  return html`
    <${Table} caption="Settings" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.name} empty="" />
    <p class="quiet">The table is at <code>${topic.table_uri}</code>. A setting is changed by
      <code>silt topic alter ${topic.name} --config NAME=VALUE</code>.</p>
  `;
}
