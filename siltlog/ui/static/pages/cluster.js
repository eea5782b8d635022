/** The cluster: its nodes, what they stand on, and what operators have nodes and topics do. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, bytes, count, duration, seconds, short, time, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { useLive } from "../app/live.js";
import { zone } from "../app/prefs.js";
import { href, setQuery } from "../app/route.js";
import { useLacks, useNotAdmin } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useGet, useSettled } from "../app/use.js";
import { Doing } from "../parts/doing.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Used } from "../parts/figures.js";
import { Badge, Field, Heading } from "../parts/form.js";
import { literal } from "../parts/snippet.js";
import { Table } from "../parts/table.js";

const EACH_MS = 3_000;
const TOPICS = 50;
const LATE_MS = 5_000;
const TEN_MINUTES_MS = 600_000;
const SERIES = ["silt_redis_up", "silt_store_errors_total", "silt_store_seconds", "silt_object_stall_seconds"];
/** Why a node drains, in words. */
const REASONS = { operator: "somebody asked for it", unready: "it cannot acknowledge", stop: "it is being stopped" };

/** @param {{ query: URLSearchParams }} props */
export function Cluster({ query }) {
  const listed = useGet(["v1", "nodes"], {}, EACH_MS);
  const about = useGet(["v1", "cluster"], {}, 3 * EACH_MS).answer;
  const live = useLive("overview");
  return html`
    <${Heading} title="Cluster">${about && html`<span class="quiet">${about.version} · log <code>${about.cluster_id}</code></span>`}<//>
    <${Loaded} of=${listed}>${(/** @type {any} */ said) => {
      const known = new Map((live?.nodes ?? []).map((/** @type {any} */ each) => [each.node, each]));
      const nodes = said.nodes.map((/** @type {any} */ node) => ({ ...node, live: known.get(node.id) ?? null, silent: (live?.silent ?? []).includes(node.id) }));
      const alone = said.view === null;
      return html`
        ${alone && html`<${Alone} />`}
        <${Waiting} nodes=${nodes} again=${listed.again} />
        <h2>${alone ? "The server" : count(nodes.length, "node")}</h2>
        <${Table} caption="Nodes" columns=${columns(nodes, alone, listed.again)} rows=${nodes} id=${(/** @type {any} */ node) => node.id} empty="" />
        ${!alone && html`<p class="actions"><${Balance} again=${listed.again} /><span class="quiet">A topic that moves pauses for under a second, and no client hears of it.</span></p>`}
        <h2>What ${alone ? "it stands" : "they stand"} on</h2>
        <${Ground} live=${live} />
        ${!alone && html`<${Owners} query=${query} nodes=${nodes} />`}`;
    }}<//>
  `;
}

function Alone() {
  return html`<div class="note calm">
    <p>This server is alone: no other shares its root. Should its machine fail, publishing waits until it is back, and what only its disk has waits with it.</p>
    <p class="quiet">Several nodes over one root (<code>SILT_CLUSTER=on</code>, a bucket, one Redis) go on within seconds when one of them is gone, and a topic
      with <code>acks=object</code> loses nothing with a disk. To see it: <code>silt demo --cluster</code>.</p>
  </div>`;
}

/** @param {any[]} nodes @param {boolean} alone @param {() => void} again */
function columns(nodes, alone, again) {
  const used = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(live: any) => number | undefined} */ share) => ({
    name, title, cell: (/** @type {any} */ node) => html`<${Used} share=${node.live === null ? undefined : share(node.live)} name=${`${title} of ${node.id}`} />`,
  });
  return [
    { name: "node", title: "Node", cell: (/** @type {any} */ node) => html`<div><strong>${node.id}</strong>${node.controller && !alone && html`<br /><span class="quiet">controller</span>`}</div>` },
    { name: "state", title: "State", cell: (/** @type {any} */ node) => html`<${State} node=${node} />` },
    { name: "address", title: "Address", cell: (/** @type {any} */ node) => html`<div>${node.url || "not proven"}${node.zone && html`<br /><span class="quiet">zone ${node.zone}</span>`}</div>` },
    { name: "version", title: "Version", cell: (/** @type {any} */ node) => node.version ?? node.live?.version ?? NOTHING },
    ...(alone ? [] : [
      { name: "topics", title: "Topics", number: true, cell: (/** @type {any} */ node) => whole(node.topics) },
      { name: "unflushed", title: "Not in a table", number: true, cell: (/** @type {any} */ node) => short(node.unflushed_records) },
    ]),
    used("wal", "WAL", (now) => now.wal && now.wal.bytes / now.wal.bytes_max),
    used("disk", "Disk", (now) => now.disk && 1 - now.disk.free / now.disk.total),
    { name: "act", title: "Have it", cell: (/** @type {any} */ node) => html`<div>${alone ? html`<${DrainAlone} />` : html`<${Draining} node=${node} nodes=${nodes} again=${again} />`}</div>` },
  ];
}

/** @param {{ node: any }} props */
function State({ node }) {
  const chosenZone = useStore(zone);
  const good = node.state === "away" || node.silent ? false : node.state === "up" && node.live?.ready !== false ? true : null;
  return html`<div><${Badge} good=${good}>${node.state}${node.live?.ready === false ? ", not ready" : ""}${node.silent && node.state !== "away" ? ", silent" : ""}<//>
    <br /><span class="quiet">${[
      node.since && `since ${time(node.since, chosenZone).slice(0, 19)}`,
      node.reason && (REASONS[/** @type {keyof typeof REASONS} */ (node.reason)] ?? node.reason),
      node.live && !node.silent && node.state !== "away" && "answers now",
    ].filter(Boolean).join("; ")}</span></div>`;
}

/** Drains a node, and takes one that is away out of the list. @param {{ node: any, nodes: any[], again: () => void }} props */
function Draining({ node, nodes, again }) {
  const lacks = useLacks();
  const notAdmin = useNotAdmin();
  if (node.state === "away") {
    const waits = node.awaited_by.length > 0 && `${count(node.awaited_by.length, "topic waits", "topics wait")} for what only its disk has: start it again, or abandon them first.`;
    return html`<${Doing} key="remove" name="Remove" title=${`Remove ${node.id}`} word=${node.id} kind="danger" done=${again}
      not=${notAdmin || waits || ""}
      asked=${[{ method: "DELETE", path: ["v1", "nodes", node.id] }]} python=${`remove_node(${literal(node.id)})`}>
      <p><strong>${node.id}</strong> is taken out of the list of nodes. Nothing is deleted; started again, it comes back.</p>
    <//>`;
  }
  if (node.state === "draining") return html`<span class="quiet">${node.topics ? `hands over ${count(node.topics, "topic")}` : "has nothing left"}; it takes topics again by its next start</span>`;
  const others = nodes.some((each) => each.id !== node.id && each.state === "up");
  return html`<${Doing} key="drain" name="Drain" title=${`Drain ${node.id}`} done=${again}
    not=${lacks("alter", "cluster") || (others ? "" : "No other node is up to take its topics.")}
    asked=${[{ method: "POST", path: ["v1", "nodes", node.id, "drain"] }]} python=${`drain_node(${literal(node.id)})`}>
    <p><strong>${node.id}</strong> hands its ${count(node.topics, "topic")} to the other nodes, one after the other, and gets no more until its next start. Clients notice
      nothing. Do this before its machine is taken away; a clean stop (SIGTERM) does the same.</p>
  <//>`;
}

/** Has the one server there is take no publishes, or take them again. */
function DrainAlone() {
  const lacks = useLacks();
  const drain = useGet(lacks("describe", "cluster") ? null : ["v1", "drain"], {}, EACH_MS);
  const not = lacks("alter", "cluster");
  if (drain.answer === null) return null;
  if (!drain.answer.draining) {
    return html`<${Doing} key="drain" name="Drain" title="Take no publishes" not=${not} done=${drain.again}
      asked=${[{ method: "POST", path: ["v1", "drain"] }]} python="drain()">
      <p>Publishes are refused from now on (503 <code>shutting_down</code>), and what was acknowledged is flushed to the tables. Reading goes on. It ends by
        "Take publishes again", or by the next start.</p>
    <//>`;
  }
  const { in_flight: flying, unflushed_bytes: left } = drain.answer;
  return html`<p class="quiet">Draining: ${left ? `${bytes(left)} are in no table yet` : "all is in the tables; it can be stopped"}.
      ${flying > 0 && ` ${count(flying, "request is", "requests are")} under way, such as what this page watches.`}</p>
    <${Doing} key="end" name="Take publishes again" not=${not} done=${drain.again} asked=${[{ method: "DELETE", path: ["v1", "drain"] }]} python="end_drain()" />`;
}

/** @param {{ again: () => void }} props */
function Balance({ again }) {
  const lacks = useLacks();
  const [moves, setMoves] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const path = ["v1", "cluster", "balance"];
  /** Asks what would move. */
  async function look() {
    setMoves(null);
    try {
      setMoves((await call("POST", path, { query: { dry_run: true } })).moves);
      setProblem(null);
    } catch (failed) {
      setProblem(failed);
    }
  }
  return html`<${Doing} name="Balance" title="Have all nodes own as many topics" begin=${look} done=${again}
    not=${lacks("alter", "cluster")}
    asked=${moves?.length ? [{ method: "POST", path }] : []} python="balance()">
    <${Failed} problem=${problem} />
    ${moves === null && problem === null && html`<p class="quiet" role="status">Looking …</p>`}
    ${moves !== null && html`<${Table} caption="What moves" columns=${MOVES} rows=${moves} id=${(/** @type {any} */ move) => move.topic} empty="The topics are even already: nothing would move." />`}
  <//>`;
}

const MOVES = [
  { name: "topic", title: "Topic", cell: (/** @type {any} */ move) => move.topic },
  { name: "from", title: "From", cell: (/** @type {any} */ move) => move.from },
  { name: "to", title: "To", cell: (/** @type {any} */ move) => move.to },
];

/** Topics that wait for a disk that is away. @param {{ nodes: any[], again: () => void }} props */
function Waiting({ nodes, again }) {
  const notAdmin = useNotAdmin();
  const chosenZone = useStore(zone);
  const rows = nodes.flatMap((node) => node.awaited_by.map((/** @type {string} */ topic) => ({ topic, node })));
  if (rows.length === 0) return null;
  const columns = [
    { name: "topic", title: "Topic", cell: (/** @type {any} */ row) => html`<a href=${href(["topics", row.topic])}>${row.topic}</a>` },
    { name: "node", title: "Waits for", cell: (/** @type {any} */ row) => `${row.node.id}, ${row.node.state} since ${time(row.node.since, chosenZone).slice(0, 19)}` },
    { name: "records", title: "Not in a table (all topics of it)", number: true, cell: (/** @type {any} */ row) => whole(row.node.unflushed_records) },
    { name: "act", title: "Where the disk is lost", cell: (/** @type {any} */ row) => html`<div><${Doing} name="Abandon" title=${`Abandon what only a lost disk has of ${row.topic}`} word=${row.topic} kind="danger" done=${again}
      not=${notAdmin}
      asked=${[{ method: "POST", path: ["v1", "topics", row.topic, "abandon"] }]} python=${`abandon_topic(${literal(row.topic)})`}>
      <p><strong>What it costs.</strong> Records of ${row.topic} that were acknowledged at <code>wal</code> and had not reached its table are on the disk of ${row.node.id} alone
        (${count(row.node.unflushed_records, "record")} of all its topics). They are given up. The topic goes on at another node with what its table has, at the next multiple of 2^32.</p>
      <p>Only where that disk never comes back; stop ${row.node.id} first. Should it come back all the same, its records are set aside in the root: <code>silt stranded list</code> finds them, and${" "}
        <code>silt stranded publish</code> publishes them again.</p>
    <//></div>` },
  ];
  return html`<section class="note" aria-label="Topics that wait">
    <h2>Topics that wait for a disk</h2>
    <p>They can be read as far as their tables go, and take no publishes, until the node that has their newest records is back. Start it again: nothing is lost then.</p>
    <${Table} caption="Topics that wait" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.topic} empty="" />
  </section>`;
}

/** Redis, the object store, the clock. @param {{ live: any }} props */
function Ground({ live }) {
  const ready = useGet(["readyz"], {}, EACH_MS);
  const past = useHistory({ series: SERIES, ms: TEN_MINUTES_MS });
  // Not ready is 503, with the same answer.
  const told = typeof ready.problem?.said?.status === "string";
  const said = told ? ready.problem.said : ready.answer;
  const warnings = said?.warnings ?? [];
  const last = (/** @type {(number|null)[]} */ values) => values.findLast((value) => value !== null) ?? null;
  const redis = warnings.some((/** @type {string} */ each) => each.startsWith("groups: Redis")) ? 0 : last(past.one("silt_redis_up"));
  const errors = Math.max(0, ...past.one("silt_store_errors_total").map((value) => value ?? 0));
  const stall = last(past.one("silt_object_stall_seconds")) ?? 0;
  const off = live?.ahead_ms ?? null;
  const store = said && !warnings.some((/** @type {string} */ each) => /store/.test(each)) && errors === 0;
  return html`
    <${Failed} problem=${told ? null : ready.problem} again=${ready.again} />
    <dl class="facts">
      <dt>Acknowledging</dt><dd>${!said ? NOTHING : html`<${Badge} good=${said.status === "ready"}>${said.status === "ready" ? "ready" : "not ready"}<//>`}</dd>
      <dt>Redis of the groups</dt><dd>${redis === null ? NOTHING : html`<${Badge} good=${redis > 0}>${redis > 0 ? "answers" : "does not answer: groups wait, publishing and reading go on"}<//>`}</dd>
      <dt>Object store</dt><dd><${Badge} good=${said ? store : null}>${!said ? "not known" : errors ? `up to ${short(errors)} failed requests a second in ten minutes` : store ? "no request failed in ten minutes" : "see below"}<//>
        <span class="quiet"> p99 ${seconds(last(past.one("silt_store_seconds", { quantile: "0.99" })))}${stall > 1 ? `; what was synced has waited ${seconds(stall)} for it` : ""}</span></dd>
      <dt>Clock</dt><dd>${off === null ? NOTHING : Math.abs(off) < LATE_MS ? "as this browser's" : html`<${Badge} good=${null}>${duration(Math.abs(off))} ${off > 0 ? "ahead of" : "behind"} this browser's<//>`}</dd>
    </dl>
    ${[...(said?.reasons ?? []), ...warnings].length > 0 &&
    html`<ul class="needs">
      ${(said.reasons ?? []).map((/** @type {string} */ each) => html`<li key=${each} class="error"><b aria-hidden="true">!</b>${each}</li>`)}
      ${warnings.map((/** @type {string} */ each) => html`<li key=${each}><b aria-hidden="true">!</b>${each}</li>`)}
    </ul>`}
  `;
}

/** Which node owns which topic, and moving one. @param {{ query: URLSearchParams, nodes: any[] }} props */
function Owners({ query, nodes }) {
  const prefix = query.get("prefix") ?? "";
  const after = query.get("after") ?? "";
  const listed = useGet(["v1", "topics"], { prefix: useSettled(prefix), after, limit: TOPICS }, EACH_MS);
  const columns = [
    { name: "topic", title: "Topic", cell: (/** @type {any} */ topic) => html`<a href=${href(["topics", topic.name])}>${topic.name}</a>` },
    { name: "owner", title: "Owner", cell: (/** @type {any} */ topic) => topic.owner || "nobody now" },
    { name: "acks", title: "Acknowledged at", cell: (/** @type {any} */ topic) => topic.config?.acks?.value ?? NOTHING },
    { name: "act", title: "Have it", cell: (/** @type {any} */ topic) => html`<div><${Move} topic=${topic} nodes=${nodes} again=${listed.again} /></div>` },
  ];
  return html`
    <h2>Topics and their owners</h2>
    <div class="row"><${Field} label="Names that begin with">
      <input type="search" data-search value=${prefix} onInput=${(/** @type {any} */ event) => setQuery({ prefix: event.target.value })} />
    <//></div>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      <${Table} caption="Topics and their owners" columns=${columns} rows=${page.topics} id=${(/** @type {any} */ topic) => topic.name} empty=${prefix ? `No topic begins with ${prefix}.` : "There is no topic yet."} />
      <p class="actions">
        ${after && html`<a href=${href(["cluster"], { prefix })}>First page</a>`}
        ${page.next && html`<a href=${href(["cluster"], { prefix, after: page.next })}>Next ${TOPICS}</a>`}
      </p>`}
    <//>`;
}

/** @param {{ topic: any, nodes: any[], again: () => void }} props */
function Move({ topic, nodes, again }) {
  const lacks = useLacks();
  const [to, setTo] = useState("");
  const others = nodes.filter((node) => node.id !== topic.owner && node.state === "up");
  const not = lacks("alter", "topic", topic.name) || (others.length ? "" : "No other node is up.");
  return html`<${Doing} name="Move" title=${`Move ${topic.name}`} not=${not} done=${again} begin=${() => setTo("")}
    asked=${[{ method: "POST", path: ["v1", "topics", topic.name, "move"], body: to ? { node: to } : {} }]}
    python=${`move_topic(${literal(topic.name)}${to ? `, ${literal(to)}` : ""})`}>
    <p>Another node owns <strong>${topic.name}</strong> from then on, and its dead letters. It is handed over within a second or so; clients notice nothing.</p>
    <${Field} label="To">
      <select value=${to} onChange=${(/** @type {any} */ event) => setTo(event.target.value)}>
        <option value="">the node with the fewest topics</option>
        ${others.map((node) => html`<option key=${node.id} value=${node.id}>${node.id}</option>`)}
      </select>
    <//>
  <//>`;
}
