/** Records of a topic: as they come, from a place, or searched for. What is asked for is in the address. */
import { get, lines, send } from "../app/api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../app/dom.js";
import { time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { href, setQuery } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useStore } from "../app/store.js";
import { tail } from "../app/tail.js";
import { useGet, useSeldom, useSettled } from "../app/use.js";
import { Export } from "../parts/export.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Field, PartitionField } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { RecordInFull, keyOf, preview } from "../parts/value.js";

const PLACE_TRIES = 10;
const PLACE_MS = 1_000;
/** So long a search may take that somebody asked for: what the server gives it, and some more. */
const SEARCH_MS = 660_000;
const ROWS_MAX = 500;
const BACK = 50;
const PAGE = 100;
const SPOKEN_MS = 5_000;
/** What is followed live begins at one of these; what is from another place is read a page at a time. */
const FOLLOWED = ["", "earliest", "latest"];
const FIELDS = ["partition", "key", "contains", "header", "header_value", "producer_id", "path", "equals", "offset", "timestamp"];

/** @param {{ topic: any, query: URLSearchParams }} props */
export function Records({ topic, query }) {
  const lacks = useLacks();
  const asked = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""]));
  const searching = query.has("search");
  const settled = useSettled(JSON.stringify(asked), 400);
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  const lacking = lacks("read", "topic", topic.name);
  if (lacking) return html`<p class="note">${lacking}</p>`;
  const found = JSON.parse(settled);
  const Found = searching ? Searched : found.timestamp === "" && FOLLOWED.includes(found.offset) ? Live : From;
  return html`
    <${Asked} topic=${topic} asked=${asked} searching=${searching} />
    <div class=${chosen ? "beside" : ""}>
      <div><${Found} key=${`${searching} ${settled}`} topic=${topic} asked=${found} chosen=${chosen} choose=${setChosen} /></div>
      ${chosen && html`<${RecordInFull} record=${chosen} close=${() => setChosen(null)}><${Further} topic=${topic.name} record=${chosen} /><//>`}
    </div>
  `;
}

/** @param {{ topic: string, record: any }} props */
function Further({ topic, record: { partition, offset } }) {
  return html`<p class="actions">
      <a href=${href(["topics", topic, "records"], { partition, offset })}>Link to it</a>
      <a href=${href(["topics", topic, "publish"], { partition, offset })}>Publish again …</a>
    </p>
    <${PublishedBy} key=${`${partition} ${offset}`} topic=${topic} partition=${partition} offset=${offset} />`;
}

/** Says who published a record, which is asked for where one is looked at: a list of them would cost more. @param {any} props */
function PublishedBy({ topic, partition, offset }) {
  const query = { offset, max_records: 1, producers: "true" };
  const { answer, problem } = useGet(["v1", "topics", topic, "partitions", String(partition), "records"], query);
  const found = answer?.records.find((/** @type {any} */ record) => record.offset === offset);
  if (problem || (answer && !found)) return html`<p class="quiet">Who published it is not known: ${problem ? problem.message : "it is there no more"}</p>`;
  if (!found) return html`<p class="quiet">…</p>`;
  if (!found.producer) return html`<p class="quiet">Published without a producer id</p>`;
  const { id, epoch, sequence } = found.producer;
  return html`<p class="quiet">Published by <a href=${href(["topics", topic, "records"], { producer_id: id, search: 1 })}>${id}</a>, epoch ${epoch}${sequence === null ? "" : `, sequence ${whole(sequence)}`}</p>`;
}

/** @param {{ topic: any, asked: Record<string, string>, searching: boolean }} props */
function Asked({ topic, asked, searching }) {
  const search = searching ? { search: 1 } : {};
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ ...asked, [name]: event.target.value, ...search });
  return html`<form class="row" role="search" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), setQuery({ ...asked, search: 1 }))}>
    <${PartitionField} of=${topic.partitions} value=${asked.partition} none="all" set=${(/** @type {string} */ value) => set("partition")({ target: { value } })} />
    <${Field} label="Key"><input size="12" data-search value=${asked.key} onInput=${set("key")} /><//>
    <${Field} label="Text in the value"><input size="14" value=${asked.contains} onInput=${set("contains")} /><//>
    <${Field} label="Header name"><input size="10" value=${asked.header} onInput=${set("header")} /><//>
    ${asked.header && html`<${Field} label="with the value"><input size="10" value=${asked.header_value} onInput=${set("header_value")} /><//>`}
    ${(searching || asked.producer_id) && html`<${Field} label="Producer id"><input size="12" value=${asked.producer_id} onInput=${set("producer_id")} /><//>`}
    ${searching &&
    html`<${Field} label="JSON Pointer"><input size="12" placeholder="/user/id" value=${asked.path} onInput=${set("path")} /><//>
      <${Field} label="is this JSON"><input size="10" placeholder="7" value=${asked.equals} onInput=${set("equals")} /><//>`}
    <${Field} label="From offset"><input size="10" inputmode="numeric" placeholder=${searching ? "earliest" : "the newest"} value=${asked.offset} onInput=${set("offset")} /><//>
    <${Field} label="or from time"><input size="20" placeholder="2026-11-21T07:36:00Z" value=${asked.timestamp} onInput=${set("timestamp")} /><//>
    ${searching
      ? html`<button key="live" type="button" onClick=${() => setQuery({ ...asked, path: "", equals: "", offset: "", timestamp: "" })}>Back to live</button>`
      : html`<button key="search" type="submit">Search all</button>`}
  </form>`;
}

/** @param {string} text */
function place(text) {
  return /^-?\d+$/.test(text) ? Number(text) : text;
}

/** Puts records that came to those that are shown, the newest first, each once. @param {any[]} before @param {any[]} came */
function merged(before, came) {
  const shown = new Set(before.map(idOf));
  const all = [...before, ...came.filter((record) => !shown.has(idOf(record)))];
  return all.sort((a, b) => (a.timestamp < b.timestamp ? 1 : a.timestamp > b.timestamp ? -1 : b.offset - a.offset)).slice(0, ROWS_MAX);
}

/** Gives what one search finds, and where it goes on. @param {string} topic @param {string} body @param {AbortSignal} signal */
async function search(topic, body, signal) {
  const found = { rows: /** @type {any[]} */ ([]), next: /** @type {any} */ (null), problem: /** @type {any} */ (null) };
  for await (const line of lines(await begun(topic, body, signal))) {
    if (line.record) found.rows.push(line.record);
    if (line.problem) found.problem = problemIn(line);
    if (line.done?.next) found.next = { cursor: line.done.next };
  }
  return found;
}

/**
 * Begins a search once it finds a place: a server has few, and one that was left a moment ago may still have its own.
 * @param {string} topic @param {string} body @param {AbortSignal} signal @param {number} [timeoutMs] for all of its answer
 */
async function begun(topic, body, signal, timeoutMs) {
  for (let left = PLACE_TRIES; ; left -= 1) {
    try {
      return await send("POST", ["v1", "topics", topic, "search"], { body, signal, timeoutMs });
    } catch (problem) {
      if (left === 0 || /** @type {import("../app/api.js").Problem} */ (problem).code !== "overloaded") throw problem;
    }
    await new Promise((resolve) => setTimeout(resolve, PLACE_MS));
  }
}

/**
 * Gives a page of records from a place on, and where the next one begins.
 * @param {string} topic @param {Record<string, string>} asked @param {any} from where a later page begins @param {AbortSignal} signal
 */
async function pageFrom(topic, asked, from, signal) {
  const { partition, key, contains, header, producer_id, offset, timestamp } = asked;
  // Only a search finds in several partitions, counts from the end, or leaves records out.
  if (partition === "" || key || contains || header || producer_id || !(timestamp || /^\d+$/.test(offset))) {
    return search(topic, wanted(asked, { limit: PAGE, ...(from && { from }) }), signal);
  }
  const query = { ...(from ?? (timestamp ? { timestamp } : { offset })), max_records: PAGE };
  const read = await get(["v1", "topics", topic, "partitions", partition, "records"], query, { signal });
  return { rows: read.records, next: read.next_offset < read.high_watermark ? { offset: read.next_offset } : null, problem: null };
}

/** @param {any} line one in which a search says why it failed */
function problemIn(line) {
  return { message: line.problem.detail, code: line.problem.error_code };
}

/** @param {any} record */
function idOf(record) {
  return `${record.partition}:${record.offset}`;
}

/** @param {any} props */
function Live({ topic, asked, chosen, choose }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [state, setState] = useState({ how: "starting", why: "" });
  const [paused, setPaused] = useState(false);
  const tailed = useRef(/** @type {ReturnType<typeof tail> | null} */ (null));
  useEffect(() => {
    const { partition: partitions, key, contains, header, header_value, producer_id, offset } = asked;
    const ended = new AbortController();
    let back = offset === "";
    const running = tail(topic.name, { partitions, key, contains, header, header_value: header && header_value, producer_id, offset }, {
      records: (came) => setRows((before) => merged(before, came)),
      state: (how, why = "") => {
        setState({ how, why });
        if (how !== "live" || !back) return;
        // The newest that were there before come after the stream has begun: none is missed between the two.
        back = false;
        const newest = search(topic.name, wanted(asked, { from: { offset: -BACK } }), ended.signal);
        newest.then((found) => setRows((before) => merged(before, found.rows)), () => {});
      },
    });
    tailed.current = running;
    return () => {
      ended.abort();
      running.end();
    };
  }, []);
  // Before it is painted: where the page says that it is paused, nothing comes.
  useLayoutEffect(() => tailed.current?.pause(paused), [paused]);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    function space(event) {
      if (event.key !== " " || /** @type {HTMLElement} */ (event.target).closest("input,button,textarea,select,summary,a,dialog")) return;
      event.preventDefault();
      setPaused((before) => !before);
    }
    addEventListener("keydown", space);
    return () => removeEventListener("keydown", space);
  }, []);
  const how = paused ? "paused" : state.how;
  return html`
    <p class="actions">
      <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <span class="quiet" role="status">${how === "live" ? "live" : how === "lost" ? "not reached; it is tried again" : how}${rows.length === ROWS_MAX ? `; the newest ${ROWS_MAX} are shown` : ""}</span>
      <${Exported} topic=${topic} rows=${rows} />
    </p>
    <${Failed} problem=${state.how === "refused" ? { message: state.why } : null} />
    <${Rows} rows=${rows} chosen=${chosen} choose=${choose} empty=${state.how === "live" ? html`No record yet. <a href=${href(["topics", topic.name, "publish"])}>Publish one</a>, and it is shown here.` : "…"} />
  `;
}

/** Records from a place on, that of the place first, a page at a time. @param {any} props */
function From({ topic, asked, chosen, choose }) {
  const [from, setFrom] = useState(/** @type {any} */ (null));
  const [turn, setTurn] = useState(0);
  const [read, setRead] = useState({ answer: /** @type {any} */ (null), problem: /** @type {any} */ (null) });
  useEffect(() => {
    const stop = new AbortController();
    pageFrom(topic.name, asked, from, stop.signal).then(
      (page) => setRead({ answer: page, problem: page.problem }),
      (problem) => stop.signal.aborted || setRead((before) => ({ ...before, problem })),
    );
    return () => stop.abort();
  }, [from, turn]);
  const again = () => setTurn(turn + 1);
  const next = read.answer?.next;
  return html`
    <p class="actions">
      ${read.answer && html`<button type="button" onClick=${() => (next ? setFrom(next) : again())}>${next ? `Next ${PAGE}` : "Look again"}</button>`}
      ${from && html`<button type="button" onClick=${() => setFrom(null)}>First page</button>`}
      <a href=${href(["topics", topic.name, "records"], { ...asked, offset: "", timestamp: "" })}>Back to live</a>
      <${Exported} topic=${topic} rows=${read.answer?.rows ?? []} />
    </p>
    <${Loaded} of=${{ ...read, again }}>${(/** @type {any} */ page) => html`
      <${Rows} rows=${page.rows} chosen=${chosen} choose=${choose} empty=${next ? "Nothing was found so far." : "There is no record from there on."} />`}
    <//>
  `;
}

/** @param {any} props */
function Searched({ topic, asked, chosen, choose }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [told, setTold] = useState(UNTOLD);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [from, setFrom] = useState(/** @type {any} */ (null));
  const stop = useRef(new AbortController());
  useEffect(() => {
    const own = new AbortController();
    stop.current = own;
    setRows([]);
    setTold(UNTOLD);
    setProblem(null);
    run(own.signal).catch((failed) => own.signal.aborted || setProblem(failed));
    return () => own.abort();
  }, [from]);

  /** @param {AbortSignal} signal */
  async function run(signal) {
    const body = wanted(asked, from && { from });
    /** @type {any[]} */
    const found = [];
    for await (const line of lines(await begun(topic.name, body, signal, SEARCH_MS))) {
      // They are drawn together, as often as it says how far it is: each by itself would draw all the others anew.
      if (line.record) found.push(line.record);
      else setRows([...found]);
      const at = line.progress ?? line.done;
      if (at) setTold({ looked: at.looked_at, of: at.of, ended: at.ended_by ?? "", next: at.next ?? "" });
      if (line.problem) setProblem(problemIn(line));
    }
  }

  const stopped = told.ended !== "" || problem !== null;
  const said = `Looked at ${whole(told.looked)} of ${whole(told.of)}; found ${whole(rows.length)}${told.ended ? `; ${ENDS[/** @type {keyof typeof ENDS} */ (told.ended)] ?? told.ended}` : ""}`;
  const spoken = useSeldom(said, SPOKEN_MS);
  return html`
    <p class="actions">
      ${!stopped && html`<button type="button" onClick=${() => (stop.current.abort(), setTold({ ...told, ended: "stop" }))}>Stop</button>`}
      ${told.next && html`<button type="button" onClick=${() => setFrom({ cursor: told.next })}>Search on</button>`}
      <span class="quiet" aria-hidden="true">${said}</span>
      <span class="unseen" role="status">${spoken}</span>
      <${Exported} topic=${topic} rows=${rows} />
    </p>
    <${Failed} problem=${problem} />
    <${Rows} rows=${rows} chosen=${chosen} choose=${choose} empty=${stopped ? "Nothing was found." : "Nothing was found yet."} />
  `;
}

const UNTOLD = { looked: 0, of: 0, ended: "", next: "" };
const ENDS = { end: "all was looked at", limit: "there may be more", timeout: "the time was up", stop: "stopped", problem: "it failed" };

/**
 * Makes the body of a search.
 * @param {Record<string, string>} asked @param {Record<string, unknown> | null} [otherwise] what is not as it was asked
 */
function wanted(asked, otherwise = null) {
  /** @type {Record<string, unknown>} */
  const body = { limit: ROWS_MAX, from: asked.timestamp ? { timestamp: asked.timestamp } : { offset: place(asked.offset || "earliest") } };
  if (asked.partition) body.partitions = [Number(asked.partition)];
  if (asked.key) body.key = asked.key;
  if (asked.contains) body.contains = asked.contains;
  if (asked.producer_id) body.producer_id = asked.producer_id;
  if (asked.path) body.path = asked.path;
  if (asked.header) body.header = asked.header;
  if (asked.header && asked.header_value) body.header_value = asked.header_value;
  const written = JSON.stringify({ ...body, ...otherwise });
  return asked.path ? `${written.slice(0, -1)},"equals":${json(asked.equals)}}` : written;
}

/** Gives what was typed as it was, where it is JSON: a number keeps its digits. Else it is a text. @param {string} text */
function json(text) {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

/** @param {any} props */
function Rows({ rows, chosen, choose, empty }) {
  const chosenZone = useStore(zone);
  const columns = [
    { name: "place", title: "Offset", number: true, cell: (/** @type {any} */ record) => `${record.partition}:${whole(record.offset)}` },
    { name: "time", title: "Time", cell: (/** @type {any} */ record) => time(record.timestamp, chosenZone) },
    { name: "key", title: "Key", cell: (/** @type {any} */ record) => html`<span class="cut">${keyOf(record).slice(0, 80)}</span>` },
    { name: "value", title: "Value", wide: true, cell: (/** @type {any} */ record) => html`<span class="cut mono">${preview(record)}</span>` },
  ];
  return html`<${Table} caption="Records" columns=${columns} rows=${rows} id=${idOf} open=${choose} chosen=${chosen && idOf(chosen)} empty=${empty} />`;
}

/** @param {{ topic: any, rows: any[] }} props */
function Exported({ topic, rows }) {
  const columns = ["partition", "offset", "timestamp", "key", "value"];
  return html`<${Export} name=${topic.name} columns=${columns} rows=${rows}
    cells=${(/** @type {any} */ row) => [row.partition, row.offset, row.timestamp, keyOf(row), row.value_base64 ?? row.value]} />`;
}
