/** Records of a topic: as they come, from a place, or searched for. What is asked for is in the address. */
import { lines, send } from "../app/api.js";
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { csv, time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { missing } from "../app/rights.js";
import { setQuery } from "../app/route.js";
import { useMay } from "../app/session.js";
import { useStore } from "../app/store.js";
import { tail } from "../app/tail.js";
import { useSettled } from "../app/use.js";
import { Failed } from "../parts/failed.js";
import { Field } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { RecordInFull, keyOf, preview } from "../parts/value.js";

const ROWS_MAX = 500;
const BACK = 50;
const FIELDS = ["partition", "key", "contains", "path", "equals", "offset", "timestamp"];

/** @param {{ topic: any, query: URLSearchParams }} props */
export function Records({ topic, query }) {
  const may = useMay();
  const asked = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""]));
  const searching = query.has("search");
  const settled = useSettled(JSON.stringify(asked), 400);
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  if (!may("read", "topic", topic.name)) return html`<p class="note">${missing("read", "topic", topic.name)}</p>`;
  const Found = searching ? Searched : Live;
  return html`
    <${Asked} topic=${topic} asked=${asked} searching=${searching} />
    <div class=${chosen ? "beside" : ""}>
      <div><${Found} key=${`${searching} ${settled}`} topic=${topic} asked=${JSON.parse(settled)} chosen=${chosen} choose=${setChosen} /></div>
      ${chosen && html`<${RecordInFull} record=${chosen} close=${() => setChosen(null)} />`}
    </div>
  `;
}

/** @param {{ topic: any, asked: Record<string, string>, searching: boolean }} props */
function Asked({ topic, asked, searching }) {
  const search = searching ? { search: 1 } : {};
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ ...asked, [name]: event.target.value, ...search });
  return html`<form class="row" role="search" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), setQuery({ ...asked, search: 1 }))}>
    <${Field} label="Partition"><select value=${asked.partition} onChange=${set("partition")}>
      <option value="">all</option>
      ${topic.offsets.map((/** @type {any} */ each) => html`<option key=${each.partition} value=${String(each.partition)}>${each.partition}</option>`)}
    </select><//>
    <${Field} label="Key"><input size="12" data-search value=${asked.key} onInput=${set("key")} /><//>
    <${Field} label="Text in the value"><input size="14" value=${asked.contains} onInput=${set("contains")} /><//>
    ${searching &&
    html`<${Field} label="JSON Pointer"><input size="12" placeholder="/user/id" value=${asked.path} onInput=${set("path")} /><//>
      <${Field} label="is this JSON"><input size="10" placeholder="7" value=${asked.equals} onInput=${set("equals")} /><//>`}
    <${Field} label="From offset"><input size="10" inputmode="numeric" placeholder=${searching ? "earliest" : "the newest"} value=${asked.offset} onInput=${set("offset")} /><//>
    <${Field} label="or from time"><input size="20" placeholder="2026-11-21T07:36:00Z" value=${asked.timestamp} onInput=${set("timestamp")} /><//>
    ${searching
      ? html`<button type="button" onClick=${() => setQuery({ ...asked, path: "", equals: "" })}>Back to live</button>`
      : html`<button type="submit">Search all</button>`}
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

/** Gives the newest records that fit. @param {string} topic @param {Record<string, string>} asked @param {AbortSignal} signal */
async function newest(topic, asked, signal) {
  const body = { ...wanted(asked), from: { offset: -BACK } };
  const found = [];
  for await (const line of lines(await send("POST", ["v1", "topics", topic, "search"], { body, signal }))) {
    if (line.record) found.push(line.record);
  }
  return found;
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
    const { partition: partitions, key, contains, offset, timestamp } = asked;
    const ended = new AbortController();
    let back = offset === "" && timestamp === "";
    const running = tail(topic.name, { partitions, key, contains, offset, timestamp }, {
      records: (came) => setRows((before) => merged(before, came)),
      state: (how, why = "") => {
        setState({ how, why });
        if (how !== "live" || !back) return;
        // The newest that were there before come after the stream has begun: none is missed between the two.
        back = false;
        newest(topic.name, asked, ended.signal).then((came) => setRows((before) => merged(before, came)), () => {});
      },
    });
    tailed.current = running;
    return () => {
      ended.abort();
      running.end();
    };
  }, []);
  useEffect(() => tailed.current?.pause(paused), [paused]);
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
      <${Export} topic=${topic} rows=${rows} />
    </p>
    <${Failed} problem=${state.how === "refused" ? { message: state.why } : null} />
    <${Rows} rows=${rows} chosen=${chosen} choose=${choose} empty=${state.how === "live" ? "No record yet. Publish one, and it is shown here." : "…"} />
  `;
}

/** @param {any} props */
function Searched({ topic, asked, chosen, choose }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [told, setTold] = useState({ looked: 0, of: 0, ended: "" });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const stop = useRef(new AbortController());
  useEffect(() => {
    run().catch((failed) => stop.current.signal.aborted || setProblem(failed));
    return () => stop.current.abort();
  }, []);

  async function run() {
    const response = await send("POST", ["v1", "topics", topic.name, "search"], { body: wanted(asked), signal: stop.current.signal, timeoutMs: 660_000 });
    for await (const line of lines(response)) {
      if (line.record) setRows((before) => (before.length < ROWS_MAX ? [...before, line.record] : before));
      const at = line.progress ?? line.done;
      if (at) setTold({ looked: at.looked_at, of: at.of, ended: at.ended_by ?? "" });
      if (line.problem) setProblem({ message: line.problem.detail, code: line.problem.error_code });
    }
  }

  const stopped = told.ended !== "" || problem !== null;
  return html`
    <p class="actions">
      ${!stopped && html`<button type="button" onClick=${() => (stop.current.abort(), setTold({ ...told, ended: "stop" }))}>Stop</button>`}
      <span class="quiet" role="status">Looked at ${whole(told.looked)} of ${whole(told.of)}; found ${whole(rows.length)}${told.ended ? `; ${ENDS[/** @type {keyof typeof ENDS} */ (told.ended)] ?? told.ended}` : ""}</span>
      <${Export} topic=${topic} rows=${rows} />
    </p>
    <${Failed} problem=${problem} />
    <${Rows} rows=${rows} chosen=${chosen} choose=${choose} empty=${stopped ? "Nothing was found." : "Nothing was found yet."} />
  `;
}

const ENDS = { end: "all was looked at", limit: "there may be more", timeout: "the time was up", stop: "stopped", problem: "it failed" };

/** Makes the body of a search. @param {Record<string, string>} asked */
function wanted(asked) {
  /** @type {Record<string, unknown>} */
  const body = { limit: ROWS_MAX, from: asked.timestamp ? { timestamp: asked.timestamp } : { offset: place(asked.offset || "earliest") } };
  if (asked.partition) body.partitions = [Number(asked.partition)];
  if (asked.key) body.key = asked.key;
  if (asked.contains) body.contains = asked.contains;
  if (asked.path) {
    body.path = asked.path;
    body.equals = json(asked.equals);
  }
  return body;
}

/** Reads what was typed as JSON, or as text where it is none. @param {string} text */
function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
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
function Export({ topic, rows }) {
  if (rows.length === 0) return null;
  const columns = ["partition", "offset", "timestamp", "key", "value"];
  const asCsv = () => csv(columns, rows.map((row) => [row.partition, row.offset, row.timestamp, keyOf(row), row.value_base64 ?? row.value]));
  const asLines = () => rows.map((row) => JSON.stringify(row)).join("\n") + "\n";
  return html`<span class="quiet">Export what is shown:${" "}
    <button type="button" class="link" onClick=${() => save(`${topic.name}.ndjson`, "application/x-ndjson", asLines())}>NDJSON</button>${" "}
    <button type="button" class="link" onClick=${() => save(`${topic.name}.csv`, "text/csv", asCsv())}>CSV</button></span>`;
}

/** @param {string} name @param {string} type @param {string} text */
function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
