/** All topics, ranked; a new one. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, bytes, seconds, short, whole } from "../app/format.js";
import { useLive } from "../app/live.js";
import { go, href, setQuery } from "../app/route.js";
import { missing } from "../app/rights.js";
import { useMay } from "../app/session.js";
import { useAct, useGet, useSettled } from "../app/use.js";
import { Dialog } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Field, Heading } from "../parts/form.js";
import { AsCode, asCurl } from "../parts/snippet.js";
import { Table } from "../parts/table.js";

const PAGE = 50;
const EACH_MS = 5_000;
const BY_NAME = "name";

/** @param {{ query: URLSearchParams }} props */
export function Topics({ query }) {
  const prefix = query.get("prefix") ?? "";
  const sort = query.get("sort") ?? "rate";
  const order = query.get("order") ?? (sort === BY_NAME ? "asc" : "desc");
  const after = query.get("after") ?? "";
  const making = query.has("new");
  const settled = useSettled(prefix);
  const listed = useGet(["v1", "topics"], { prefix: settled, sort, order, after, limit: PAGE }, EACH_MS);
  const live = useLive("topics");
  const now = new Map((live?.topics ?? []).map((/** @type {any} */ topic) => [topic.name, topic]));
  const asked = { prefix, sort, order };
  /** @param {string} by */
  function rank(by) {
    const turned = by === sort && order === "desc" ? "asc" : by === sort && order === "asc" ? "desc" : by === BY_NAME ? "asc" : "desc";
    setQuery({ prefix, sort: by, order: turned });
  }
  return html`
    <${Heading} title="Topics"><a class="button main" href=${href(["topics"], { ...asked, new: 1 })}>New topic</a><//>
    <div class="row">
      <${Field} label="Names that begin with">
        <input type="search" data-search value=${prefix}
          onInput=${(/** @type {any} */ event) => setQuery({ ...asked, prefix: event.target.value })} />
      <//>
    </div>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      <${Table} caption="Topics" columns=${columns(now)} rows=${page.topics} id=${(/** @type {any} */ topic) => topic.name}
        sorted=${{ by: sort, down: order === "desc" }} sort=${rank}
        open=${(/** @type {any} */ topic) => go(["topics", topic.name])}
        empty=${prefix ? `No topic begins with ${prefix}.` : "There is no topic yet."} />
      <p class="actions">
        ${after && html`<a href=${href(["topics"], asked)}>First page</a>`}
        ${page.next && html`<a href=${href(["topics"], { ...asked, after: page.next })}>Next ${PAGE}</a>`}
        ${live && html`<span class="quiet">${whole(live.of)} in all</span>`}
      </p>`}
    <//>
    ${making && html`<${NewTopic} close=${() => setQuery(asked)} />`}
  `;
}

/** @param {Map<string, any>} now what is live of each topic */
function columns(now) {
  const of = (/** @type {any} */ topic) => now.get(topic.name);
  return [
    { name: "name", title: "Name", sort: true, cell: (/** @type {any} */ topic) => html`<a href=${href(["topics", topic.name])}>${topic.name}</a>` },
    { name: "rate", title: "In/s", number: true, sort: true, cell: (/** @type {any} */ topic) => short(of(topic)?.records_in_per_s) },
    { name: "records", title: "Records", number: true, sort: true, cell: (/** @type {any} */ topic) => short(of(topic)?.records ?? topic.records) },
    { name: "bytes", title: "Size", number: true, sort: true, cell: (/** @type {any} */ topic) => bytes(of(topic)?.bytes ?? topic.bytes) },
    { name: "files", title: "Files", number: true, sort: true, cell: (/** @type {any} */ topic) => whole(topic.files) },
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
  const may = useMay();
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const body = { name, partitions: Number(partitions) };
  const make = useAct(async () => {
    await call("POST", ["v1", "topics"], { body });
    go(["topics", name]);
  });
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (name) void make.run();
  }
  const not = name && !may("create", "topic", name) ? missing("create", "topic", name) : "";
  return html`<${Dialog} title="New topic" close=${close}>
    <form onSubmit=${submit}>
      <${Field} label="Name" hint="Letters, digits, dots, dashes and underscores; it cannot be changed.">
        <input required maxlength="196" pattern="[a-zA-Z0-9._\\-]+" autocomplete="off" spellcheck="false" value=${name}
          onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <//>
      <${Field} label="Partitions" hint="Records of one key stay in order, in one partition. There can be more later, never fewer.">
        <input type="number" required min="1" max="10000" value=${partitions} onInput=${(/** @type {any} */ event) => setPartitions(event.target.value)} />
      <//>
      <${Failed} problem=${make.problem} />
      <p class="actions">
        <${Action} kind="main" busy=${make.busy} not=${not} act=${() => name && make.run()}>Make it<//>
        <${AsCode} shown=${{
          curl: asCurl({ method: "POST", path: ["v1", "topics"], body }),
          python: `from siltlog import Admin\n\nwith Admin(${JSON.stringify(location.origin)}) as admin:\n    admin.create_topic(${JSON.stringify(name)}, partitions=${body.partitions})`,
        }} />
      </p>
    </form>
  <//>`;
}
