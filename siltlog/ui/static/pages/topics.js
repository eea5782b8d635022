/** All topics, ranked; a new one. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, bytes, percent, seconds, short, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { useLive } from "../app/live.js";
import { ranking } from "../app/ranking.js";
import { go, href, setQuery } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useAct, useGet, useSettled } from "../app/use.js";
import { Dialog } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Field, Heading } from "../parts/form.js";
import { AsCode, asCurl, withAdmin } from "../parts/snippet.js";
import { Spark } from "../parts/spark.js";
import { Table } from "../parts/table.js";

const PAGE = 50;
const EACH_MS = 5_000;
const HOUR_MS = 3_600_000;
const SPARK_STEPS = 60;

/** @param {{ query: URLSearchParams }} props */
export function Topics({ query }) {
  const { prefix, sort, order, after, asked, rank } = ranking(query, "rate");
  const making = query.has("new");
  const settled = useSettled(prefix);
  const listed = useGet(["v1", "topics"], { prefix: settled, sort, order, after, limit: PAGE }, EACH_MS);
  const live = useLive("topics");
  const past = useHistory({ series: ["silt_records_total"], ms: HOUR_MS, steps: SPARK_STEPS });
  const rates = new Map(past.by("silt_records_total", "topic").map((each) => [each.name, each.values]));
  const now = new Map((live?.topics ?? []).map((/** @type {any} */ topic) => [topic.name, topic]));
  return html`
    <${Heading} title="Topics"><a class="button main" href=${href(["topics"], { ...asked, new: 1 })}>New topic</a><//>
    <div class="row">
      <${Field} label="Names that begin with">
        <input type="search" data-search value=${prefix}
          onInput=${(/** @type {any} */ event) => setQuery({ ...asked, prefix: event.target.value })} />
      <//>
    </div>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      <${Table} caption="Topics" columns=${columns(now, rates)} rows=${page.topics} id=${(/** @type {any} */ topic) => topic.name}
        sorted=${{ by: sort, down: order === "desc" }} sort=${rank}
        open=${(/** @type {any} */ topic) => go(["topics", topic.name])}
        empty=${prefix ? `No topic begins with ${prefix}.` : "There is no topic yet."} />
      <p class="actions">
        ${after && html`<a href=${href(["topics"], asked)}>First page</a>`}
        ${page.next && html`<a href=${href(["topics"], { ...asked, after: page.next })}>Next ${PAGE}</a>`}
        ${live && live.of !== null && html`<span class="quiet">${whole(live.of)} in all</span>`}
      </p>`}
    <//>
    ${making && html`<${NewTopic} close=${() => setQuery(asked)} />`}
  `;
}

/** @param {Map<string, any>} now what is live of each topic @param {Map<string, (number|null)[]>} rates of the last hour, of the busiest */
function columns(now, rates) {
  const of = (/** @type {any} */ topic) => now.get(topic.name);
  return [
    { name: "name", title: "Name", sort: true, cell: (/** @type {any} */ topic) => html`<a href=${href(["topics", topic.name])}>${topic.name}</a>` },
    { name: "rate", title: "In/s", number: true, sort: true, cell: (/** @type {any} */ topic) => short(of(topic)?.records_in_per_s) },
    { name: "hour", title: "The last hour", cell: (/** @type {any} */ topic) => html`<${Spark} values=${rates.get(topic.name) ?? []} />` },
    { name: "records", title: "Records", number: true, sort: true, cell: (/** @type {any} */ topic) => short(of(topic)?.records ?? topic.records) },
    { name: "bytes", title: "Size", number: true, sort: true, cell: (/** @type {any} */ topic) => bytes(of(topic)?.bytes ?? topic.bytes) },
    { name: "files", title: "Files", number: true, sort: true, cell: (/** @type {any} */ topic) => whole(topic.files) },
    { name: "small", title: "Small files", number: true, cell: (/** @type {any} */ topic) => percent(of(topic)?.small_files_share) },
    { name: "partitions", title: "Partitions", number: true, cell: (/** @type {any} */ topic) => whole(topic.partitions) },
    { name: "lag", title: "Groups, records behind", sort: true, cell: (/** @type {any} */ topic) => behind(of(topic)?.groups ?? []) },
    { name: "table", title: "In the table after", number: true, cell: (/** @type {any} */ topic) => seconds(of(topic)?.table_lag_s) },
  ];
}

/** @param {any[]} groups */
function behind(groups) {
  if (groups.length === 0) return NOTHING;
  return groups.map(
    (each, at) => html`${at > 0 ? ", " : ""}<a key=${each.group} href=${href(["groups", each.group])}>${each.group}</a> ${short(each.lag)}`,
  );
}

/** @param {{ close: () => void }} props */
function NewTopic({ close }) {
  const lacks = useLacks();
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const body = partitions ? { name, partitions: Number(partitions) } : { name };
  const make = useAct(async () => {
    await call("POST", ["v1", "topics"], { body });
    go(["topics", name]);
  });
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (!not) void make.run();
  }
  const not = name ? lacks("create", "topic", name) : "";
  return html`<${Dialog} title="New topic" close=${close}>
    <form onSubmit=${submit}>
      <${Field} label="Name" hint="Letters, digits, dots, dashes and underscores; it cannot be changed.">
        <input required maxlength="196" pattern="[a-zA-Z0-9._\\-]+" title="Letters, digits, dots, dashes and underscores, and no spaces." autocomplete="off" spellcheck=${false} value=${name}
          onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <//>
      <${Field} label="Partitions" hint="Records of one key stay in order, in one partition. There can be more later, never fewer. Left out: as many as the server gives.">
        <input type="number" min="1" max="10000" value=${partitions} onInput=${(/** @type {any} */ event) => setPartitions(event.target.value)} />
      <//>
      <${Failed} problem=${make.problem} />
      <p class="actions">
        <${Action} kind="main" type="submit" busy=${make.busy} not=${not}>Make it<//>
        <${AsCode} shown=${{
          curl: asCurl({ method: "POST", path: ["v1", "topics"], body }),
          python: withAdmin(`create_topic(${JSON.stringify(name)}${partitions && `, partitions=${body.partitions}`})`),
        }} />
      </p>
    </form>
  <//>`;
}
