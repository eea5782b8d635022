/** What a query gave: as a table or as a chart, with what the server says of it, and as a file. */
import { html, useEffect, useMemo, useState } from "../app/dom.js";
import { count, duration, whole } from "../app/format.js";
import { Bars } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { Export } from "../parts/export.js";
import { Table } from "../parts/table.js";
import { charted, isNumber, written } from "./shape.js";

const SHOWN_MAX = 500;

/** @param {{ result: any }} props what `POST /v1/sql` answered */
export function Result({ result }) {
  const [way, setWay] = useState("table");
  const chart = useMemo(() => charted(result), [result]);
  const shown = way === "chart" && chart === null ? "table" : way;
  const names = result.columns.map((/** @type {any} */ column) => column.name);
  return html`<section aria-label="Result">
    <p role="status">${told(result)}</p>
    ${result.cut && html`<p class="note">There are more rows than these: the server cut after ${whole(result.rows.length)}. Ask for fewer, or group them.</p>`}
    ${!result.head && html`<p class="note">The newest records are not in it: those above the tables are more than 64 MiB, or the node that has them does not answer.</p>`}
    <p class="actions">
      ${chart !== null &&
      html`<fieldset class="choice"><legend class="unseen">Shown as</legend>
        ${["table", "chart"].map((each) => html`<label key=${each}><input type="radio" name="way" checked=${each === shown} onChange=${() => setWay(each)} />${each}</label>`)}
      </fieldset>`}
      <${Export} name="query" what="all rows" columns=${names} rows=${result.rows} cells=${(/** @type {any[]} */ row) => row}
        line=${(/** @type {any[]} */ row) => Object.fromEntries(names.map((/** @type {string} */ name, /** @type {number} */ at) => [name, row[at]]))} />
    </p>
    ${shown === "chart" ? html`<${Charted} chart=${chart} />` : html`<${Rows} result=${result} />`}
  </section>`;
}

/** Says in one line what the answer is of. @param {any} result */
function told(result) {
  const versions = Object.entries(result.snapshot).map(([topic, version]) => `${topic} at version ${whole(/** @type {number} */ (version))}`);
  return [
    count(result.rows.length, "row"),
    duration(result.elapsed_ms),
    `${versions.length === 1 ? "table" : "tables"} ${versions.join(", ")}${result.head_records > 0 ? `, and ${count(result.head_records, "record")} not in ${versions.length === 1 ? "it" : "them"} yet` : ""}`,
  ].join(" · ");
}

/** @param {{ result: any }} props */
function Rows({ result }) {
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  // A row of the answer before is none of this one.
  useEffect(() => setChosen(null), [result]);
  const rows = useMemo(() => result.rows.slice(0, SHOWN_MAX).map((/** @type {any[]} */ cells, /** @type {number} */ at) => ({ at, cells })), [result]);
  const columns = result.columns.map((/** @type {any} */ column, /** @type {number} */ at) => ({
    name: String(at),
    title: column.name,
    number: isNumber(column.type),
    cell: (/** @type {any} */ row) => html`<${Cell} value=${row.cells[at]} number=${isNumber(column.type)} />`,
  }));
  return html`
    <div class=${chosen ? "beside" : ""}>
      <${Table} caption="Rows" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => String(row.at)}
        open=${setChosen} chosen=${chosen && String(chosen.at)} empty="The query gave no row." />
      ${chosen && html`<${RowInFull} columns=${result.columns} row=${chosen} close=${() => setChosen(null)} />`}
    </div>
    ${result.rows.length > SHOWN_MAX && html`<p class="quiet">The first ${whole(SHOWN_MAX)} are shown; an export has all ${whole(result.rows.length)}.</p>`}
  `;
}

/** A row with nothing of it cut. @param {{ columns: any[], row: any, close: () => void }} props */
function RowInFull({ columns, row, close }) {
  return html`<aside aria-label="One row">
    <div class="bar">
      <h2>Row ${whole(row.at + 1)}</h2>
      <button type="button" class="close" aria-label="Close the row" onClick=${close}>×</button>
    </div>
    <dl class="facts">${columns.map((column, at) => html`<dt key=${at}>${column.name}</dt><dd class="whole"><code>${written(row.cells[at])}</code></dd>`)}</dl>
  </aside>`;
}

/** @param {{ value: any, number: boolean }} props */
function Cell({ value, number }) {
  if (value === null) return html`<i class="null">NULL</i>`;
  if (value === "") return html`<i class="null">empty</i>`;
  return number ? written(value) : html`<span class="cut">${written(value)}</span>`;
}

/** @param {{ chart: any }} props */
function Charted({ chart }) {
  if (chart.kind === "times") return html`<${Chart} title=${chart.title} times=${chart.times} series=${chart.series} write=${short} />`;
  return html`<${Bars} title=${chart.title} bars=${chart.bars} write=${short} />`;
}

/** @param {number|null} value */
function short(value) {
  return value === null ? "–" : value.toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** How the server would go about the query. @param {{ result: any }} props */
export function Plan({ result }) {
  return html`<section aria-label="Plan">
    <h2>Plan</h2>
    <p class="quiet">Read it from the bottom up: the tables that are scanned, and what is done with their rows. Nothing was run.</p>
    <pre class="plan" tabindex="0">${result.rows.map((/** @type {any[]} */ row) => row[row.length - 1]).join("\n")}</pre>
  </section>`;
}
