/** One group: how far it is behind, who reads what, and a reset with its preview. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, count, seconds, short, time, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { zone } from "../app/prefs.js";
import { direction } from "../app/trend.js";
import { go, href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useAct, useGet } from "../app/use.js";
import { Chart } from "../parts/chart.js";
import { Confirm } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Field, Heading, State } from "../parts/form.js";
import { AsCode, asCurl, literal, withAdmin } from "../parts/snippet.js";
import { LongTable } from "../parts/table.js";

const EACH_MS = 2_000;
const HOUR_MS = 3_600_000;
/** The trend is of so many of the last values. */
const RECENT = 30;
/** So many partitions of a member are named. */
const NAMED = 12;
const MOVES = { rises: ", rising", falls: ", falling", stays: ", steady", "": "" };
const TARGETS = [
  ["earliest", "the log start"],
  ["latest", "the end"],
  ["timestamp", "a time"],
  ["offset", "an offset"],
  ["shift", "so many on, or back"],
];

/** Targets that want an amount beside them. */
const AMOUNTS = new Set(["timestamp", "offset", "shift"]);

/** @param {{ path: string[] }} props */
export function Group({ path }) {
  const name = path[1];
  const described = useGet(["v1", "groups", name], {}, EACH_MS);
  const past = useHistory({ series: ["silt_group_lag_records", "silt_group_lag_seconds"], ms: HOUR_MS, group: name });
  const records = past.by("silt_group_lag_records", "group");
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["groups"])}>Groups</a> › ${name}`}>
      ${described.answer && html`<${Deleting} name=${name} group=${described.answer} />`}
    <//>
    <${Loaded} of=${described}>${(/** @type {any} */ group) => html`
      <p><${State} state=${group.state} /> <span class="quiet">${count(group.members.length, "member")}${group.type === "classic" ? `, which share out the partitions themselves${group.protocol ? ` (${group.protocol})` : ""}` : ""} · ${behind(group.partitions)}${MOVES[direction((records[0]?.values ?? []).slice(-RECENT))]} · <a href=${href(["metrics"], { group: name })}>metrics</a></span></p>
      <div class="charts">
        <${Chart} title="Records behind, the last hour" times=${past.times} write=${short} series=${records} />
        <${Chart} title="Behind by, the last hour" times=${past.times} write=${seconds} series=${past.by("silt_group_lag_seconds", "group")} />
      </div>
      <h2>Partitions</h2>
      <${LongTable} caption="Partitions" columns=${PARTITIONS} rows=${furthest(group.partitions)} id=${idOf} empty="It has read nothing, and committed nothing." />
      ${group.moving.length > 0 && html`<p class="note">On the way to another member: ${places(group.moving)}. Whoever has them lets go first, so that nothing is read twice.</p>`}
      <h2>Members</h2>
      <${Members} name=${name} group=${group} again=${described.again} />
      <h2>Reset</h2>
      <${Reset} name=${name} group=${group} again=${described.again} />`}
    <//>
  `;
}

/** Lists partitions, the first of them where they are many. @param {any[]} partitions */
function places(partitions) {
  const named = partitions.slice(0, NAMED).map((each) => `${each.topic}:${each.partition}`).join(", ");
  return partitions.length > NAMED ? `${named} and ${whole(partitions.length - NAMED)} more` : named;
}

/** Those that are furthest behind come first. @param {any[]} partitions */
function furthest(partitions) {
  return [...partitions].sort((a, b) => b.lag - a.lag);
}

/** @param {any[]} partitions */
function total(partitions) {
  return partitions.reduce((sum, each) => sum + each.lag, 0);
}

/** Gives how long the record has waited that has waited longest, in seconds. @param {any[]} partitions */
function worst(partitions) {
  return partitions.reduce((most, each) => Math.max(most, each.lag === 0 ? 0 : (each.lag_seconds ?? 0)), 0);
}

/** @param {any[]} partitions */
function behind(partitions) {
  const lag = total(partitions);
  return lag === 0 ? "not behind" : `${whole(lag)} records behind, by ${seconds(worst(partitions))}`;
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

/** @param {{ name: string, group: any, again: () => void }} props */
function Members({ name, group, again }) {
  const lacks = useLacks();
  const chosenZone = useStore(zone);
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  const not = lacks("alter", "group", name);
  const owned = Map.groupBy(group.partitions, (/** @type {any} */ each) => each.member_id);
  const held = (/** @type {any} */ member) => owned.get(member.member_id) ?? [];
  const columns = [
    { name: "member", title: "Member", cell: (/** @type {any} */ row) => html`${row.member_id}${row.instance_id && html` <span class="quiet">static: ${row.instance_id}</span>`}` },
    { name: "joined", title: "Since", cell: (/** @type {any} */ row) => (row.joined_at ? time(row.joined_at, chosenZone) : NOTHING) },
    { name: "client", title: "Client", cell: (/** @type {any} */ row) => [row.client_id, row.client_host].filter(Boolean).join(" at ") || NOTHING },
    { name: "topics", title: "Topics", cell: (/** @type {any} */ row) => row.topic_pattern ?? row.topics.join(", ") },
    { name: "partitions", title: "Partitions", cell: (/** @type {any} */ row) => places(row.assignment) || NOTHING },
    { name: "lag", title: "Records behind", number: true, cell: (/** @type {any} */ row) => whole(total(held(row))) },
    { name: "seconds", title: "Behind by", number: true, cell: (/** @type {any} */ row) => (total(held(row)) ? seconds(worst(held(row))) : NOTHING) },
    { name: "remove", title: "Remove", cell: (/** @type {any} */ row) => html`<${Action} kind="link" not=${not} act=${() => setRemoving(row)}>Remove …<span class="unseen"> ${row.member_id}</span><//>` },
  ];
  return html`
    ${group.last_rebalance_at && html`<p class="quiet">Last rebalance: ${time(group.last_rebalance_at, chosenZone)}</p>`}
    <${LongTable} caption="Members" columns=${columns} rows=${group.members} id=${(/** @type {any} */ member) => member.member_id} empty="Nobody reads in this group now." />
    ${removing && html`<${Removing} name=${name} member=${removing} done=${again} close=${() => setRemoving(null)} />`}
  `;
}

/** @param {{ name: string, member: any, done: () => void, close: () => void }} props */
function Removing({ name, member, done, close }) {
  const path = ["v1", "groups", name, "members", member.member_id];
  const remove = useAct(async () => {
    await call("DELETE", path);
    done();
    close();
  });
  return html`<${Confirm} title="Remove a member" word=${name} doing="Remove it" busy=${remove.busy} act=${remove.run} close=${close}>
    <p>The partitions of <strong>${member.client_id ?? member.member_id}</strong> go to the other members at once. What it has read and not committed is read again.
      A consumer that still runs joins anew: stop it first, where it is to stay away.</p>
    <p><${AsCode} shown=${{ curl: asCurl({ method: "DELETE", path }) }} /></p>
    <${Failed} problem=${remove.problem} />
  <//>`;
}

/** @param {{ name: string, group: any }} props */
function Deleting({ name, group }) {
  const lacks = useLacks();
  const [asking, setAsking] = useState(false);
  const remove = useAct(async () => {
    await call("DELETE", ["v1", "groups", name]);
    go(["groups"]);
  });
  const not = lacks("delete", "group", name) || (group.members.length ? `It has ${count(group.members.length, "member")}: stop them first.` : "");
  return html`<${Action} kind="danger" not=${not} act=${() => setAsking(true)}>Delete …<//>
    ${asking &&
    html`<${Confirm} title="Delete the group" word=${name} doing="Delete it" busy=${remove.busy} act=${remove.run} close=${() => setAsking(false)}>
      <p>Its committed offsets are forgotten; records and topics stay.</p>
      <p><${AsCode} shown=${{ curl: asCurl({ method: "DELETE", path: ["v1", "groups", name] }), python: withAdmin(`delete_group(${JSON.stringify(name)})`) }} /></p>
      <${Failed} problem=${remove.problem} />
    <//>`}`;
}

/** @param {{ name: string, group: any, again: () => void }} props */
function Reset({ name, group, again }) {
  const lacks = useLacks();
  const topics = [...new Set(group.partitions.map((/** @type {any} */ each) => each.topic))];
  const [topic, setTopic] = useState("");
  const [to, setTo] = useState("earliest");
  const [amount, setAmount] = useState("");
  const [asking, setAsking] = useState(/** @type {any} */ (null));
  const number = /^-?\d+$/.test(amount) ? Number(amount) : amount;
  const chosen = topic ? [topic] : topics;
  const body = { to, topics: chosen, ...(AMOUNTS.has(to) && { [to]: number }) };
  const path = ["v1", "groups", name, "offsets", "reset"];
  const preview = useAct(async () => ({ body, offsets: (await call("POST", path, { body: { ...body, dry_run: true } })).offsets }));
  const reset = useAct(async () => {
    await call("POST", path, { body: asking.body });
    setAsking(null);
    preview.clear();
    again();
  });
  const not = lacks("alter", "group", name) || (group.members.length ? `The group must be empty: it has ${count(group.members.length, "member")}. Stop them first.` : "");
  // Only what was previewed is reset: a preview of other inputs is not shown.
  const previewed = JSON.stringify(preview.result?.body) === JSON.stringify(body) ? preview.result : null;
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
      ${AMOUNTS.has(to) &&
      html`<${Field} label=${to === "timestamp" ? "Time (RFC 3339)" : to === "offset" ? "Offset" : "Records, negative: back"}>
        <input value=${amount} onInput=${changed(setAmount)} />
      <//>`}
      <${Action} not=${not} act=${preview.run} busy=${preview.busy}>Preview<//>
    </div>
    <${Failed} problem=${preview.problem} />
    ${not && html`<p class="quiet">${not}</p>`}
    ${previewed &&
    html`<${LongTable} caption="What the reset does" columns=${moved(group)} rows=${previewed.offsets} id=${idOf} empty="Nothing is moved." />
      <p class="actions">
        <${Action} kind="danger" not=${not} act=${() => setAsking(previewed)}>Reset …<//>
        <${AsCode} shown=${{
          curl: asCurl({ method: "POST", path, body }),
          python: withAdmin(`reset_group(${JSON.stringify(name)}, ${JSON.stringify(to)}, topics=${literal(chosen)}${AMOUNTS.has(to) ? `, ${to}=${literal(number)}` : ""})`),
        }} />
      </p>`}
    ${asking &&
    html`<${Confirm} title="Reset the group" word=${name} doing="Reset it" busy=${reset.busy} act=${reset.run} close=${() => setAsking(null)}>
      <p>${said(asking.offsets, group)}</p>
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

/** @param {any[]} rows @param {any} group */
function said(rows, group) {
  const moves = rows.map((row) => meaning(row, group)).filter((text) => text !== "stays");
  return moves.length === 0 ? "Nothing is moved." : `${count(moves.length, "partition")}: ${moves.slice(0, 5).join(", ")}${moves.length > 5 ? ", …" : ""}.`;
}
