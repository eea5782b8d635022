/** SQL over topics, answered by the server. The query is in the address; the last ones are kept in this browser. */
import { send } from "../app/api.js";
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { exact } from "../app/exact.js";
import { keepQuery, queries } from "../app/prefs.js";
import { setQuery } from "../app/route.js";
import { useStore } from "../app/store.js";
import { useAct } from "../app/use.js";
import { Failed } from "../parts/failed.js";
import { Field, Heading } from "../parts/form.js";
import { AsCode, asCurl } from "../parts/snippet.js";
import { Editor } from "../sql/editor.js";
import { quoted } from "../sql/names.js";
import { Plan, Result } from "../sql/result.js";
import { Tables, useTables } from "../sql/tables.js";

const LIMITS = [100, 1_000, 10_000];
/** Longer than the server lets a query run. */
const ANSWER_MS = 60_000;
const PATH = ["v1", "sql"];

/** Queries to begin with. @type {[string, (table: string) => string][]} */
const EXAMPLES = [
  ["the newest records", (table) => `select "offset", timestamp, string(key) as key, string(value) as value\nfrom ${table}\norder by timestamp desc\nlimit 50`],
  ["records of each key", (table) => `select string(key) as key, count(*) as records\nfrom ${table}\ngroup by 1\norder by 2 desc\nlimit 20`],
  ["records a minute", (table) => `select date_trunc('minute', timestamp) as minute, count(*) as records\nfrom ${table}\ngroup by 1\norder by 1`],
];

/** @param {{ query: URLSearchParams }} props */
export function Sql({ query }) {
  const [text, setText] = useState(query.get("q") ?? "");
  const [prefix, setPrefix] = useState("");
  const [limit, setLimit] = useState(1_000);
  const [place, setPlace] = useState(/** @type {{ at: number } | null} */ (null));
  const tables = useTables(prefix);
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const [cancelled, setCancelled] = useState(false);
  const hand = useRef(/** @type {{ put?: (name: string) => void }} */ ({}));
  const asked = query.get("q") ?? "";
  useEffect(() => {
    if (asked !== "" && asked !== text) setText(asked);
  }, [asked]);
  useEffect(() => () => stop.current?.abort(), []);
  const run = useAct(async (plan = false) => {
    const controller = new AbortController();
    stop.current = controller;
    setCancelled(false);
    setPlace(null);
    setQuery({ q: text });
    keepQuery(text);
    try {
      const body = { sql: text, limit, ...(plan && { plan }) };
      const response = await send("POST", PATH, { body, signal: controller.signal, timeoutMs: ANSWER_MS });
      return { plan, ...exact(await response.text()) };
    } catch (problem) {
      if (controller.signal.aborted) return (setCancelled(true), null);
      throw problem;
    }
  });
  const ask = (plan = false) => text.trim() !== "" && run.run(plan);
  const put = (/** @type {string} */ name) => hand.current.put?.(name);
  return html`
    <${Heading} title="SQL" />
    <div class="asking">
      <${Tables} tables=${tables} prefix=${prefix} setPrefix=${setPrefix} put=${put} />
      <div>
        <${Editor} text=${text} set=${setText} run=${ask} tables=${tables.readable} place=${place} hand=${hand.current} />
        <div class="row">
          ${run.busy
            ? html`<button type="button" class="danger" onClick=${() => stop.current?.abort()}>Cancel</button>`
            : html`<button type="button" class="main" disabled=${text.trim() === ""} onClick=${() => ask()}>Run <kbd>Ctrl Enter</kbd></button>
                <button type="button" disabled=${text.trim() === ""} onClick=${() => ask(true)}>Plan</button>`}
          <${Field} label="Rows at most"><select value=${String(limit)} onChange=${(/** @type {any} */ event) => setLimit(Number(event.target.value))}>
            ${LIMITS.map((each) => html`<option key=${each} value=${String(each)}>${each.toLocaleString("en-US")}</option>`)}
          </select><//>
          <${AsCode} shown=${{ curl: asCurl({ method: "POST", path: PATH, body: { sql: text, limit } }) }} />
        </div>
        ${text === "" && tables.readable.length > 0 && html`<${Examples} table=${tables.readable.find((name) => !name.startsWith("_")) ?? tables.readable[0]} set=${setText} />`}
        ${run.busy && html`<${Running} />`}
        ${cancelled && !run.busy && html`<p class="quiet" role="status">Cancelled: the server has ended the query.</p>`}
        <${Wrong} problem=${run.problem} text=${asked} go=${(/** @type {number} */ at) => setPlace({ at })} />
        ${run.result && !run.busy && (run.result.plan ? html`<${Plan} result=${run.result} />` : html`<${Result} result=${run.result} />`)}
        <${Asked} choose=${setText} />
      </div>
    </div>
  `;
}

/** @param {{ table: string, set: (text: string) => void }} props */
function Examples({ table, set }) {
  return html`<p>Begin with ${EXAMPLES.map(([name, made], at) => html`${at > 0 ? ", " : ""}<button type="button" class="link" key=${name} onClick=${() => set(made(quoted(table)))}>${name}</button>`)} of ${table}.</p>`;
}

function Running() {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const began = performance.now();
    const timer = setInterval(() => setSeconds(Math.round((performance.now() - began) / 1000)), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<p class="quiet"><span role="status">The query runs.</span> ${seconds} s; it may take 30.</p>`;
}

/** Says what is wrong with a query, and where. @param {{ problem: any, text: string, go: (at: number) => void }} props */
function Wrong({ problem, text, go }) {
  if (problem === null) return null;
  const lines = text.split("\n");
  const { line, column } = problem.said.place ?? placeOf(lines, problem.said.topic);
  const here = lines[line - 1] !== undefined;
  const at = here ? lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1 : 0;
  return html`<${Failed} problem=${problem} />
    ${here &&
    html`<pre class="where" tabindex="0" aria-label="Where it is wrong">${lines[line - 1]}${"\n"}${" ".repeat(Math.max(column - 1, 0))}<b>▲</b></pre>
      <p><button type="button" class="link" onClick=${() => go(at)}>To line ${line}, column ${column}</button></p>`}
    ${problem.code === "not_supported" &&
    html`<div class="note"><p>SQL is an extra of the server. Where it runs:</p><pre tabindex="0">pip install 'siltlog[sql]'</pre><p>and start it anew.</p></div>`}`;
}

/** Finds a topic that is not there in the lines of a query. @param {string[]} lines @param {string | undefined} topic */
function placeOf(lines, topic) {
  const line = topic ? lines.findIndex((each) => each.includes(topic)) : -1;
  return { line: line + 1, column: line < 0 ? 0 : lines[line].indexOf(/** @type {string} */ (topic)) + 1 };
}

/** @param {{ choose: (text: string) => void }} props */
function Asked({ choose }) {
  const kept = useStore(queries);
  if (kept.length === 0) return null;
  return html`<details class="asked">
    <summary>Asked before (${kept.length})</summary>
    <ol>${kept.map((each) => html`<li key=${each}><button type="button" class="link mono cut" onClick=${() => choose(each)}>${each}</button></li>`)}</ol>
    <p class="quiet">They are kept in this browser alone. <button type="button" class="link" onClick=${() => queries.set([])}>Forget them</button></p>
  </details>`;
}
