/** One group: how far it is behind, who reads what, and a reset with its preview. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, count, seconds, short, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { missing } from "../app/rights.js";
import { go, href } from "../app/route.js";
import { useMay } from "../app/session.js";
import { useAct, useGet } from "../app/use.js";
import { Chart } from "../parts/chart.js";
import { Confirm } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Field, Heading } from "../parts/form.js";
import { AsCode, asCurl, literal } from "../parts/snippet.js";
import { Table } from "../parts/table.js";
import { State } from "./groups.js";

const EACH_MS = 2_000;
const TARGETS = [
  ["earliest", "the log start"],
  ["latest", "the end"],
  ["timestamp", "a time"],
  ["offset", "an offset"],
  ["shift", "so many on, or back"],
];

/** @param {{ path: string[] }} props */
export function Group({ path }) {
  const name = path[1];
  const described = useGet(["v1", "groups", name], {}, EACH_MS);
  const past = useHistory({ series: ["silt_group_lag_records"], ms: 3_600_000, group: name });
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["groups"])}>Groups</a> › ${name}`}>
      ${described.answer && html`<${Deleting} name=${name} group=${described.answer} />`}
    <//>
    <${Loaded} of=${described}>${(/** @type {any} */ group) => html`
      <p><${State} state=${group.state} /> <span class="quiet">${count(group.members.length, "member")} · ${whole(total(group))} records behind</span></p>
      <${Chart} title="Records behind, the last hour" times=${past.times} write=${short} series=${past.by("silt_group_lag_records", "group")} />
      <h2>Partitions</h2>
      <${Table} caption="Partitions" columns=${PARTITIONS} rows=${group.partitions} id=${idOf} empty="It has read nothing, and committed nothing." />
      <h2>Members</h2>
      <${Table} caption="Members" columns=${MEMBERS} rows=${group.members} id=${(/** @type {any} */ member) => member.member_id} empty="Nobody reads in this group now." />
      <h2>Reset</h2>
      <${Reset} name=${name} group=${group} again=${described.again} />`}
    <//>
  `;
}

/** @param {any} group */
function total(group) {
  return group.partitions.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.lag, 0);
}

/** @param {any} row */
function idOf(row) {
  return `${row.topic} ${row.partition}`;
}

const PARTITIONS = [
  { name: "topic", title: "Topic", cell: (/** @type {any} */ row) => html`<a href=${href(["topics", row.topic])}>${row.topic}</a>` },
  { name: "partition", title: "Partition", number: true, cell: (/** @type {any} */ row) => row.partition },
  { name: "offset", title: "Next to read", number: true, cell: (/** @type {any} */ row) => html`<a href=${href(["topics", row.topic, "records"], { partition: row.partition, offset: row.offset })}>${whole(row.offset)}</a>` },
  { name: "end", title: "High watermark", number: true, cell: (/** @type {any} */ row) => whole(row.high_watermark) },
  { name: "lag", title: "Records behind", number: true, cell: (/** @type {any} */ row) => whole(row.lag) },
  { name: "seconds", title: "Behind by", number: true, cell: (/** @type {any} */ row) => (row.lag === 0 ? NOTHING : seconds(row.lag_seconds)) },
  { name: "member", title: "Read by", cell: (/** @type {any} */ row) => row.member_id ?? NOTHING },
];
const MEMBERS = [
  { name: "member", title: "Member", cell: (/** @type {any} */ row) => row.member_id },
  { name: "client", title: "Client", cell: (/** @type {any} */ row) => row.client_id ?? NOTHING },
  { name: "topics", title: "Topics", cell: (/** @type {any} */ row) => row.topic_pattern ?? row.topics.join(", ") },
  { name: "partitions", title: "Partitions", cell: (/** @type {any} */ row) => row.assignment.map((/** @type {any} */ each) => `${each.topic}:${each.partition}`).join(", ") || NOTHING },
];

/** @param {{ name: string, group: any }} props */
function Deleting({ name, group }) {
  const may = useMay();
  const [asking, setAsking] = useState(false);
  const remove = useAct(async () => {
    await call("DELETE", ["v1", "groups", name]);
    go(["groups"]);
  });
  const not = may("delete", "group", name) ? (group.members.length ? `It has ${count(group.members.length, "member")}: stop them first.` : "") : missing("delete", "group", name);
  return html`<${Action} kind="danger" not=${not} act=${() => setAsking(true)}>Delete …<//>
    ${asking &&
    html`<${Confirm} title="Delete the group" word=${name} doing="Delete it" busy=${remove.busy} act=${remove.run} close=${() => setAsking(false)}>
      <p>Its committed offsets are forgotten; records and topics stay.</p>
      <${Failed} problem=${remove.problem} />
    <//>`}`;
}

/** @param {{ name: string, group: any, again: () => void }} props */
function Reset({ name, group, again }) {
  const may = useMay();
  const topics = [...new Set(group.partitions.map((/** @type {any} */ each) => each.topic))];
  const [topic, setTopic] = useState("");
  const [to, setTo] = useState("earliest");
  const [amount, setAmount] = useState("");
  const [asking, setAsking] = useState(false);
  const number = /^-?\d+$/.test(amount) ? Number(amount) : amount;
  const chosen = topic ? [topic] : topics;
  const body = { to, topics: chosen, ...(to in { timestamp: 1, offset: 1, shift: 1 } && { [to]: number }) };
  const path = ["v1", "groups", name, "offsets", "reset"];
  const preview = useAct(async () => (await call("POST", path, { body: { ...body, dry_run: true } })).offsets);
  const reset = useAct(async () => {
    await call("POST", path, { body });
    setAsking(false);
    preview.clear();
    again();
  });
  const not = !may("alter", "group", name)
    ? missing("alter", "group", name)
    : group.members.length
      ? `The group must be empty: it has ${count(group.members.length, "member")}. Stop them first.`
      : "";
  const changed = (/** @type {(value: string) => void} */ set) => (/** @type {any} */ event) => (preview.clear(), set(event.target.value));
  return html`
    <div class="row">
      <${Field} label="Topics"><select value=${topic} onChange=${changed(setTopic)}>
        <option value="">all</option>
        ${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select><//>
      <${Field} label="To"><select value=${to} onChange=${changed(setTo)}>
        ${TARGETS.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
      </select><//>
      ${to in { timestamp: 1, offset: 1, shift: 1 } &&
      html`<${Field} label=${to === "timestamp" ? "Time (RFC 3339)" : to === "offset" ? "Offset" : "Records, negative: back"}>
        <input value=${amount} onInput=${changed(setAmount)} />
      <//>`}
      <${Action} act=${preview.run} busy=${preview.busy}>Preview<//>
    </div>
    <${Failed} problem=${preview.problem} />
    ${preview.result &&
    html`<${Table} caption="What the reset does" columns=${moved(group)} rows=${preview.result} id=${idOf} empty="Nothing is moved." />
      <p class="actions">
        <${Action} kind="danger" not=${not} act=${() => setAsking(true)}>Reset …<//>
        <${AsCode} shown=${{
          curl: asCurl({ method: "POST", path, body }),
          python: `from siltlog import Admin\n\nwith Admin(${JSON.stringify(location.origin)}) as admin:\n    admin.reset_group(${JSON.stringify(name)}, ${JSON.stringify(to)}, topics=${literal(chosen)}${to in { timestamp: 1, offset: 1, shift: 1 } ? `, ${to}=${literal(number)}` : ""})`,
        }} />
      </p>
      ${not && html`<p class="quiet">${not}</p>`}`}
    ${asking &&
    html`<${Confirm} title="Reset the group" word=${name} doing="Reset it" busy=${reset.busy} act=${reset.run} close=${() => setAsking(false)}>
      <p>${said(preview.result, group)}</p>
      <${Failed} problem=${reset.problem} />
    <//>`}
  `;
}

/** @param {any} group */
function moved(group) {
  return [
    { name: "topic", title: "Topic", cell: (/** @type {any} */ row) => row.topic },
    { name: "partition", title: "Partition", number: true, cell: (/** @type {any} */ row) => row.partition },
    { name: "before", title: "Now", number: true, cell: (/** @type {any} */ row) => (row.before === null ? NOTHING : whole(row.before)) },
    { name: "after", title: "After", number: true, cell: (/** @type {any} */ row) => whole(row.after) },
    { name: "means", title: "Means", cell: (/** @type {any} */ row) => meaning(row, group) },
  ];
}

/** Says what a move of one partition does. @param {any} row @param {any} group */
function meaning(row, group) {
  const now = row.before ?? group.partitions.find((/** @type {any} */ each) => idOf(each) === idOf(row))?.offset;
  if (now === undefined || now === row.after) return now === undefined ? "begins there" : "stays";
  return row.after < now ? `${whole(now - row.after)} again` : `${whole(row.after - now)} skipped`;
}

/** @param {any[] | null} rows @param {any} group */
function said(rows, group) {
  const moves = (rows ?? []).map((row) => meaning(row, group)).filter((text) => text !== "stays");
  return moves.length === 0 ? "Nothing is moved." : `${count(moves.length, "partition")}: ${moves.slice(0, 5).join(", ")}${moves.length > 5 ? ", …" : ""}.`;
}
