/** Metrics: what the server, a topic or a group did in the last minutes, hours or days. */
import { html, useState } from "../app/dom.js";
import { bytes, percent, seconds, short } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { useLive } from "../app/live.js";
import { RANGES, rangeOf } from "../app/range.js";
import { href, setQuery } from "../app/route.js";
import { Chart, SERIES_MAX } from "../parts/chart.js";
import { Export } from "../parts/export.js";
import { Failed } from "../parts/failed.js";
import { Field, Heading } from "../parts/form.js";

/**
 * A chart: its series by name, each a metric with its labels; `by` gives those of a metric by a label, the highest first.
 * @typedef {{ title: string, write: (value: number|null) => string, of?: [string, string, Record<string, string>?][], by?: [string, string] }} Drawn
 */

/** @param {number|null} value */
const perSecond = (value) => `${bytes(value)}/s`;
/** @param {string} metric @returns {[string, string, Record<string, string>][]} */
const quantiles = (metric) => [["p50", metric, { quantile: "0.5" }], ["p99", metric, { quantile: "0.99" }]];

/** @type {Drawn[]} */
const OF_ALL = [
  { title: "Records per second", write: short, of: [["published", "silt_records_total"], ["read", "silt_read_records_total"]] },
  { title: "Bytes per second", write: perSecond, of: [["published", "silt_record_bytes_total"], ["read", "silt_read_bytes_total"]] },
  { title: "Acknowledged after", write: seconds, of: quantiles("silt_ack_seconds") },
  { title: "In the table after", write: seconds, of: [["oldest record that waits", "silt_table_lag_seconds"]] },
  { title: "Write-ahead log", write: bytes, of: [["used", "silt_wal_used_bytes"], ["at most", "silt_wal_bytes_max"]] },
  { title: "A flush takes", write: seconds, of: quantiles("silt_flush_seconds") },
  { title: "Records that groups are behind", write: short, by: ["silt_group_lag_records", "group"] },
  { title: "Groups are behind by", write: seconds, by: ["silt_group_lag_seconds", "group"] },
  { title: "A request to the object store takes", write: seconds, of: quantiles("silt_store_seconds") },
  { title: "What failed, per second", write: short, of: [["requests to the store", "silt_store_errors_total"], ["flushes", "silt_flush_failures_total"], ["records, as dead letters", "silt_dead_letters_total"]] },
  { title: "The event loop is late by", write: seconds, of: quantiles("silt_loop_lag_seconds") },
  { title: "Memory", write: bytes, of: [["the server", "process_resident_memory_bytes"], ["the head of the log", "silt_head_bytes"]] },
  { title: "Processor", write: percent, of: [["of one core", "process_cpu_seconds_total"]] },
  { title: "Connections", write: short, of: [["open", "silt_connections"]] },
];
/** @type {Drawn[]} */
const OF_TOPIC = [
  { title: "Records per second", write: short, of: [["published", "silt_records_total"], ["read", "silt_read_records_total"]] },
  { title: "Bytes per second", write: perSecond, of: [["published", "silt_record_bytes_total"], ["read", "silt_read_bytes_total"]] },
  { title: "In the table after", write: seconds, of: [["oldest record that waits", "silt_table_lag_seconds"]] },
  { title: "Files of the table", write: short, of: [["all", "silt_table_live_files"], ["small", "silt_table_small_files"]] },
  { title: "What failed, per second", write: short, of: [["flushes", "silt_flush_failures_total"], ["records, as dead letters", "silt_dead_letters_total"]] },
];
/** @type {Drawn[]} */
const OF_GROUP = [
  { title: "Records behind", write: short, of: [["behind", "silt_group_lag_records"]] },
  { title: "Behind by", write: seconds, of: [["oldest record not read", "silt_group_lag_seconds"]] },
];

/** @param {{ query: URLSearchParams }} props */
export function Metrics({ query }) {
  const [topic, group] = ["topic", "group"].map((name) => query.get(name) ?? "");
  const { name, text: written, ms } = rangeOf(query);
  /** @type {Record<string, string>} */
  const label = topic ? { topic } : group ? { group } : {};
  const charts = topic ? OF_TOPIC : group ? OF_GROUP : OF_ALL;
  const series = [...new Set(charts.flatMap((chart) => (chart.by ? [chart.by[0]] : (chart.of ?? []).map(([, metric]) => metric))))];
  const past = useHistory({ series, ms, ...label });
  const drawn = charts.map((chart) => ({ ...chart, series: seriesOf(chart, past, label) }));
  const columns = drawn.flatMap((chart) => chart.series.map((each) => ({ name: `${chart.title}: ${each.name}`, values: each.values })));
  return html`
    <${Heading} title="Metrics">
      <nav class="ranges" aria-label="How far back">
        ${RANGES.map(([each, , text]) => html`<a key=${each} href=${href(["metrics"], { range: each, topic, group })} aria-current=${each === name ? "true" : undefined}>${text}</a>`)}
      </nav>
    <//>
    <${Chosen} range=${name} topic=${topic} group=${group} />
    <${Failed} problem=${past.problem} />
    ${past.silent.length > 0 &&
    html`<ul class="needs">${past.silent.map((each) => html`<li key=${each.node} class="error"><b aria-hidden="true">!</b><span><strong>${each.node}</strong> is silent, and not in these figures: ${each.reason}</span></li>`)}</ul>`}
    ${!past.asked
      ? !past.problem && html`<p class="quiet" role="status">Loading …</p>`
      : html`<div class="charts">${drawn.map((chart) => html`<${Chart} key=${`${chart.title} ${name}`} title=${chart.title} times=${past.times} write=${chart.write} series=${chart.series} />`)}</div>
          <p class="actions"><${Export} name=${["metrics", topic || group, name].filter(Boolean).join("-")} columns=${["time", ...columns.map((each) => each.name)]}
            rows=${past.times.map((time, at) => ({ time, ...Object.fromEntries(columns.map((each) => [each.name, each.values[at] ?? null])) }))} cells=${Object.values} />
            <span class="quiet">The last ${written}${topic ? `, of the topic ${topic}` : group ? `, of the group ${group}` : ", of all nodes together"}. For more there are <code>/metrics</code> and Prometheus.</span></p>`}
  `;
}

/** @param {Drawn} chart @param {ReturnType<typeof useHistory>} past @param {Record<string, string>} label */
function seriesOf(chart, past, label) {
  if (chart.by) return past.by(...chart.by).slice(0, SERIES_MAX);
  return (chart.of ?? []).map(([name, metric, labels = {}]) => ({ name, values: past.one(metric, { ...labels, ...label }) }));
}

/** What is looked at: all, a topic or a group. @param {{ range: string, topic: string, group: string }} props */
function Chosen({ range, topic, group }) {
  const topics = useLive("topics")?.topics ?? [];
  const groups = useLive("groups")?.groups ?? [];
  // What is typed stays while the lists beside it are drawn anew each second.
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ ({}));
  const of = (/** @type {string} */ name, /** @type {string} */ chosen) => ({
    value: typed[name] ?? chosen,
    onInput: (/** @type {any} */ event) => setTyped({ [name]: event.target.value }),
    onChange: (/** @type {any} */ event) => {
      setTyped({});
      setQuery({ range, [name]: event.target.value });
    },
  });
  return html`<div class="row">
    <${Field} label="Topic"><input list="topics" type="search" data-search placeholder="all" ...${of("topic", topic)} />
      <datalist id="topics">${topics.map((/** @type {any} */ each) => html`<option key=${each.name} value=${each.name} />`)}</datalist><//>
    <${Field} label="or group"><input list="all-groups" type="search" placeholder="all" ...${of("group", group)} />
      <datalist id="all-groups">${groups.map((/** @type {any} */ each) => html`<option key=${each.group} value=${each.group} />`)}</datalist><//>
    ${topic && html`<a href=${href(["topics", topic])}>the topic ${topic}</a>`}
    ${group && html`<a href=${href(["groups", group])}>the group ${group}</a>`}
  </div>`;
}
