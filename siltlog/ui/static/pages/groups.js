/** All groups, ranked by how far they are behind. */
import { html } from "../app/dom.js";
import { NOTHING, seconds, whole } from "../app/format.js";
import { useLive } from "../app/live.js";
import { go, href, setQuery } from "../app/route.js";
import { useGet, useSettled } from "../app/use.js";
import { Loaded } from "../parts/failed.js";
import { Badge, Field, Heading } from "../parts/form.js";
import { Table } from "../parts/table.js";

const PAGE = 50;
const EACH_MS = 5_000;

/** @param {{ query: URLSearchParams }} props */
export function Groups({ query }) {
  const prefix = query.get("prefix") ?? "";
  const sort = query.get("sort") ?? "lag";
  const order = query.get("order") ?? (sort === "name" ? "asc" : "desc");
  const after = query.get("after") ?? "";
  const listed = useGet(["v1", "groups"], { prefix: useSettled(prefix), sort, order, after, limit: PAGE }, EACH_MS);
  const live = new Map((useLive("groups")?.groups ?? []).map((/** @type {any} */ group) => [group.group, group]));
  const lagOf = (/** @type {any} */ group) => live.get(group.group)?.lag ?? group.lag;
  /** @param {string} by */
  function rank(by) {
    setQuery({ prefix, sort: by, order: by !== sort ? (by === "name" ? "asc" : "desc") : order === "desc" ? "asc" : "desc" });
  }
  const columns = [
    { name: "name", title: "Name", sort: true, cell: (/** @type {any} */ group) => html`<a href=${href(["groups", group.group])}>${group.group}</a>` },
    { name: "state", title: "State", cell: (/** @type {any} */ group) => html`<${State} state=${live.get(group.group)?.state ?? group.state} />` },
    { name: "members", title: "Members", number: true, sort: true, cell: (/** @type {any} */ group) => whole(live.get(group.group)?.members ?? group.members) },
    { name: "topics", title: "Topics", cell: (/** @type {any} */ group) => (group.topics ?? []).slice(0, 5).join(", ") || NOTHING },
    { name: "lag", title: "Records behind", number: true, sort: true, cell: (/** @type {any} */ group) => whole(lagOf(group)) },
    { name: "seconds", title: "Behind by", number: true, cell: (/** @type {any} */ group) => (lagOf(group) === 0 ? NOTHING : seconds(live.get(group.group)?.lag_seconds)) },
  ];
  return html`
    <${Heading} title="Groups" />
    <div class="row"><${Field} label="Names that begin with">
      <input type="search" data-search value=${prefix} onInput=${(/** @type {any} */ event) => setQuery({ prefix: event.target.value, sort, order })} />
    <//></div>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      <${Table} caption="Groups" columns=${columns} rows=${page.groups} id=${(/** @type {any} */ group) => group.group}
        sorted=${{ by: sort, down: order === "desc" }} sort=${rank} open=${(/** @type {any} */ group) => go(["groups", group.group])}
        empty=${prefix ? `No group begins with ${prefix}.` : html`No group yet. <code>silt consume TOPIC --group NAME</code> makes one.`} />
      <p class="actions">
        ${after && html`<a href=${href(["groups"], { prefix, sort, order })}>First page</a>`}
        ${page.next && html`<a href=${href(["groups"], { prefix, sort, order, after: page.next })}>Next ${PAGE}</a>`}
      </p>`}
    <//>
  `;
}

/** @param {{ state: string | null }} props */
export function State({ state }) {
  return html`<${Badge} good=${state === "stable" ? true : null}>${state ?? "not known"}<//>`;
}
