/** The groups that read a topic, and how far each is behind in it. */
import { html } from "../app/dom.js";
import { NOTHING, seconds, short, whole } from "../app/format.js";
import { useHistory } from "../app/history.js";
import { go, href } from "../app/route.js";
import { useGet } from "../app/use.js";
import { Chart } from "../parts/chart.js";
import { Loaded } from "../parts/failed.js";
import { Table } from "../parts/table.js";
import { State } from "../parts/form.js";

const EACH_MS = 5_000;
const GROUPS = 200;
const HOUR_MS = 3_600_000;

/** @param {{ name: string, live: any }} props `live` is what is live of the topic, where it is among the busiest */
export function TopicGroups({ name, live }) {
  const listed = useGet(["v1", "groups"], { topic: name, sort: "lag", limit: GROUPS }, EACH_MS);
  const past = useHistory({ series: ["silt_group_lag_records"], ms: HOUR_MS });
  const here = new Map((live?.groups ?? []).map((/** @type {any} */ each) => [each.group, each]));
  const columns = [
    { name: "name", title: "Group", cell: (/** @type {any} */ group) => html`<a href=${href(["groups", group.group])}>${group.group}</a>` },
    { name: "state", title: "State", cell: (/** @type {any} */ group) => html`<${State} state=${group.state} />` },
    { name: "members", title: "Members", number: true, cell: (/** @type {any} */ group) => whole(group.members) },
    { name: "here", title: "Records behind here", number: true, cell: (/** @type {any} */ group) => whole(here.get(group.group)?.lag) },
    { name: "seconds", title: "Behind by", number: true, cell: (/** @type {any} */ group) => (here.get(group.group)?.lag ? seconds(here.get(group.group).lag_seconds) : NOTHING) },
    { name: "lag", title: "In all its topics", number: true, cell: (/** @type {any} */ group) => whole(group.lag) },
  ];
  return html`<${Loaded} of=${listed}>${(/** @type {any} */ page) => {
    const names = new Set(page.groups.map((/** @type {any} */ group) => group.group));
    const series = past.by("silt_group_lag_records", "group").filter((each) => names.has(each.name));
    return html`
      <${Table} caption="Groups" columns=${columns} rows=${page.groups} id=${(/** @type {any} */ group) => group.group}
        open=${(/** @type {any} */ group) => go(["groups", group.group])}
        empty=${html`No group has read this topic. <code>silt consume ${name} --group NAME</code> makes one.`} />
      ${page.next && html`<p class="quiet">The ${GROUPS} that are furthest behind are shown.</p>`}
      ${names.size > 0 && html`<${Chart} title="Records that these groups are behind in all their topics, the last hour" times=${past.times} write=${short} series=${series} />`}`;
  }}<//>`;
}
