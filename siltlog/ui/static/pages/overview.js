/** The overview: is all well, what is coming in, who is behind, what needs somebody. */
import { html } from "../app/dom.js";
import { NOTHING, bytes, count, duration, seconds, short, time, whole } from "../app/format.js";
import { useLive } from "../app/live.js";
import { zone } from "../app/prefs.js";
import { href } from "../app/route.js";
import { useStore } from "../app/store.js";
import { useHistory } from "../app/history.js";
import { RANGES, rangeOf } from "../app/range.js";
import { gone } from "../app/trend.js";
import { Chart, SERIES_MAX } from "../parts/chart.js";
import { Failed } from "../parts/failed.js";
import { Used } from "../parts/figures.js";
import { Badge, Heading } from "../parts/form.js";
import { Spark } from "../parts/spark.js";

const SPARK_POINTS = 60;
const DAY_MS = 86_400_000;

/** Where what needs somebody is mended. @param {any} need @returns {string[] | null} */
function placeOf(need) {
  const subject = need.subject ?? "";
  switch (need.kind) {
    case "dead_letters":
      return ["dead_letters", subject];
    case "table":
      return ["topics", subject, "files"];
    case "group_stalled":
      return ["groups", subject];
    case "job_failed":
      return ["jobs", subject];
    case "disk":
    case "node_silent":
      return ["cluster"];
    default:
      return null;
  }
}

/** @param {{ query: URLSearchParams }} props */
export function Overview({ query }) {
  const range = rangeOf(query);
  const now = useLive("overview");
  const past = useHistory({
    series: ["silt_records_total", "silt_read_records_total", "silt_ack_seconds", "silt_table_lag_seconds", "silt_group_lag_seconds", "silt_group_lag_records"],
    ms: range.ms,
  });
  const disk = useHistory({ series: ["silt_disk_free_bytes"], ms: DAY_MS });
  const full = gone(disk.times, disk.one("silt_disk_free_bytes"));
  const lags = past.by("silt_group_lag_records", "group");
  return html`
    <${Heading} title="Overview">${now !== null && html`<${Health} now=${now} />`}<//>
    ${now === null
      ? html`<p class="quiet" role="status">Looking …</p>`
      : html`<${Tiles} now=${now} past=${past} full=${full} /><${Needs} now=${now} />`}
    ${now?.totals?.topics === 0 && html`<${First} />`}
    <div class="bar section"><h2>The last ${range.words}</h2><${Ranges} chosen=${range.name} /></div>
    <${Failed} problem=${past.problem} />
    <div class="charts">
      <${Chart} title="Records per second" times=${past.times} write=${short} series=${[
        { name: "published", values: past.one("silt_records_total") },
        { name: "read", values: past.one("silt_read_records_total") },
      ]} />
      <${Chart} title="Acknowledged after" times=${past.times} write=${seconds} series=${[
        { name: "p50", values: past.one("silt_ack_seconds", { quantile: "0.5" }) },
        { name: "p99", values: past.one("silt_ack_seconds", { quantile: "0.99" }) },
      ]} />
      <${Chart} title="Records that groups are behind" times=${past.times} write=${short} series=${lags.slice(0, SERIES_MAX)} />
      <${Chart} title="In the table after" times=${past.times} write=${seconds} series=${[
        { name: "oldest record that waits", values: past.one("silt_table_lag_seconds") },
      ]} />
    </div>
  `;
}

/** @param {{ now: any }} props */
function Health({ now }) {
  const chosenZone = useStore(zone);
  return html`<span>
    <${Badge} good=${now.ready}>${now.ready ? "Ready" : "Not ready"}<//>
    <span class="quiet"> ${[now.node, now.version, now.started_at && `since ${time(now.started_at, chosenZone).slice(0, 16)}`].filter(Boolean).join(" · ")}
      ${now.nodes?.length > 1 ? html` · ${count(now.nodes.length, "node")}` : ""}</span>
  </span>`;
}

/** @param {{ chosen: string }} props */
function Ranges({ chosen }) {
  return html`<nav class="ranges" aria-label="How far back">
    ${RANGES.map(([name, words]) => html`<a key=${name} href=${href([], { range: name })} aria-label=${`The last ${words}`}
      aria-current=${name === chosen ? "true" : undefined}>${name}</a>`)}
  </nav>`;
}

/** @param {{ now: any, past: any, full: number | null }} props */
function Tiles({ now, past, full }) {
  const rates = now.rates ?? {};
  const worst = now.worst_lag;
  const last = (/** @type {(number|null)[]} */ values) => values.slice(-SPARK_POINTS);
  return html`<div class="tiles">
    <${Tile} name="In" value=${short(rates.records_in)} unit="records/s" more=${`${bytes(rates.bytes_in)}/s`} values=${last(past.one("silt_records_total"))} />
    <${Tile} name="Out" value=${short(rates.records_out)} unit="records/s" more=${`${bytes(rates.bytes_out)}/s`} values=${last(past.one("silt_read_records_total"))} />
    <${Tile} name="Acknowledged, p99" value=${duration(now.ack_p99_ms)} values=${last(past.one("silt_ack_seconds", { quantile: "0.99" }))} />
    <${Tile} name="In the table, p95" value=${seconds(now.table_lag_p95_s)} values=${last(past.one("silt_table_lag_seconds"))} />
    <${Tile} name="Worst lag" values=${last(past.one("silt_group_lag_seconds"))}
      value=${worst ? (worst.seconds ? seconds(worst.seconds) : short(worst.records)) : NOTHING}
      more=${worst ? html`<a href=${href(["groups", worst.group])}>${worst.group}</a> ${whole(worst.records)} records` : "nobody is behind"} />
    <${Room} now=${now} full=${full} />
  </div>`;
}

/** @param {{ name: string, value: any, unit?: string, more?: any, values?: (number|null)[] }} props */
function Tile({ name, value, unit = "", more = "", values = [] }) {
  return html`<div class="tile">
    <div class="name">${name}</div>
    <div class="value"><span>${value} <small>${unit}</small></span>${values.length > 1 && html`<${Spark} values=${values} />`}</div>
    <div class="quiet">${more}</div>
  </div>`;
}

/** @param {{ now: any, full: number | null }} props */
function Room({ now, full }) {
  const { wal, disk } = now;
  return html`<div class="tile">
    <div class="name">Room</div>
    ${wal && html`<div class="used">WAL <${Used} share=${wal.bytes / wal.bytes_max} name="Write-ahead log" /></div>`}
    ${disk && html`<div class="used">Disk <${Used} share=${1 - disk.free / disk.total} name="Disk" /></div>`}
    <div class="quiet">${disk ? `${bytes(disk.free)} free${full === null ? "" : `, full in ${duration(full)}`}` : ""}</div>
  </div>`;
}

/** @param {{ now: any }} props */
function Needs({ now }) {
  const all = [
    ...now.reasons.map((/** @type {any} */ reason) => ({ severity: "error", kind: "", detail: reason.detail })),
    ...(now.silent ?? []).map((/** @type {string} */ node) => ({ severity: "error", kind: "node_silent", subject: node, detail: `${node} does not answer` })),
    ...(now.attention ?? []),
  ];
  if (all.length === 0) return html`<p class="quiet">Nothing needs attention.</p>`;
  return html`<section aria-label="What needs somebody">
    <h2>Needs somebody</h2>
    <ul class="needs">
      ${all.map((need) => {
        const place = placeOf(need);
        return html`<li key=${`${need.kind} ${need.subject} ${need.detail}`} class=${need.severity}>
          <b aria-hidden="true">!</b>
          <span>${need.subject && need.kind !== "node_silent" ? html`<strong>${need.subject}</strong>: ` : ""}${need.detail}</span>
          ${place && html`<a href=${href(place)}>look<span class="unseen"> at ${need.subject || need.kind}</span></a>`}
        </li>`;
      })}
    </ul>
  </section>`;
}

function First() {
  return html`<section class="note">
    <h2>Begin here</h2>
    <ol>
      <li><a href=${href(["topics"], { new: 1 })}>Make a topic</a>: a log with a name.</li>
      <li>Publish a record on its page, or by <code>silt publish NAME '{"hello": "world"}'</code>.</li>
      <li>Seconds later it is a row of an open Delta table too.</li>
    </ol>
  </section>`;
}
