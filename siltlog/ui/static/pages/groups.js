/** All groups, ranked by how far they are behind. */
import { html } from "../app/dom.js";
import { NOTHING, seconds, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { useLive } from "../app/live.js";
import { ranking } from "../app/ranking.js";
import { go, href, setQuery } from "../app/route.js";
import { useGet, useSettled } from "../app/use.js";
import { Loaded } from "../parts/failed.js";
import { Field, Heading, State } from "../parts/form.js";
import { Spark } from "../parts/spark.js";
import { Table } from "../parts/table.js";

const PAGE = 50;
const EACH_MS = 5_000;
const HOUR_MS = 3_600_000;
const SPARK_STEPS = 60;

/** @param {{ query: URLSearchParams }} props */
export function Groups({ query }) {
  const { prefix, sort, order, after, asked, rank } = ranking(query, "lag");
  const listed = useGet(["v1", "groups"], { prefix: useSettled(prefix), sort, order, after, limit: PAGE }, EACH_MS);
  const live = new Map((useLive("groups")?.groups ?? []).map((/** @type {any} */ group) => [group.group, group]));
  const past = useHistory({ series: ["silt_group_lag_records"], ms: HOUR_MS, steps: SPARK_STEPS });
  const lags = new Map(past.by("silt_group_lag_records", "group").map((each) => [each.name, each.values]));
  const lagOf = (/** @type {any} */ group) => live.get(group.group)?.lag ?? group.lag;
  const columns = [
    { name: "name", title: "Name", sort: true, cell: (/** @type {any} */ group) => html`<a href=${href(["groups", group.group])}>${group.group}</a>` },
    { name: "state", title: "State", cell: (/** @type {any} */ group) => html`<${State} state=${live.get(group.group)?.state ?? group.state} />` },
    { name: "members", title: "Members", number: true, sort: true, cell: (/** @type {any} */ group) => whole(live.get(group.group)?.members ?? group.members) },
    { name: "topics", title: "Topics", cell: (/** @type {any} */ group) => (group.topics ?? []).slice(0, 5).join(", ") || NOTHING },
    { name: "lag", title: "Records behind", number: true, sort: true, cell: (/** @type {any} */ group) => whole(lagOf(group)) },
    { name: "hour", title: "The last hour", cell: (/** @type {any} */ group) => html`<${Spark} values=${lags.get(group.group) ?? []} />` },
    { name: "seconds", title: "Behind by", number: true, cell: (/** @type {any} */ group) => (lagOf(group) === 0 ? NOTHING : seconds(live.get(group.group)?.lag_seconds)) },
  ];
  return html`
    <${Heading} title="Groups" />
    <div class="row"><${Field} label="Names that begin with">
      <input type="search" data-search value=${prefix} onInput=${(/** @type {any} */ event) => setQuery({ ...asked, prefix: event.target.value })} />
    <//></div>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      <${Table} caption="Groups" columns=${columns} rows=${page.groups} id=${(/** @type {any} */ group) => group.group}
        sorted=${{ by: sort, down: order === "desc" }} sort=${rank} open=${(/** @type {any} */ group) => go(["groups", group.group])}
        empty=${prefix ? `No group begins with ${prefix}.` : html`No group yet. <code>silt consume TOPIC --group NAME</code> makes one.`} />
      <p class="actions">
        ${after && html`<a href=${href(["groups"], asked)}>First page</a>`}
        ${page.next && html`<a href=${href(["groups"], { ...asked, after: page.next })}>Next ${PAGE}</a>`}
      </p>`}
    <//>
  `;
}
