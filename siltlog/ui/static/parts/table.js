/** Tables: real ones, which become cards where the window is narrow. */
import { html, useState } from "../app/dom.js";
import { whole } from "../app/format.js";

const ROWS = 50;

/**
 * @typedef {{
 *   name: string,
 *   title: any,
 *   cell: (row: any) => any,
 *   number?: boolean,
 *   sort?: boolean,
 *   wide?: boolean,
 * }} Column
 */

/**
 * @param {{
 *   caption: string,
 *   columns: Column[],
 *   rows: any[],
 *   id: (row: any) => string,
 *   empty: any,
 *   sorted?: { by: string, down: boolean },
 *   sort?: (by: string) => void,
 *   open?: (row: any) => void,
 *   chosen?: string,
 * }} props
 */
export function Table({ caption, columns, rows, id, empty, sorted, sort, open, chosen }) {
  if (rows.length === 0) return html`<div class="empty">${empty}</div>`;
  return html`<div class="table" role="region" aria-label=${caption} tabindex="0">
    <table>
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map((column) => html`<${Head} key=${column.name} column=${column} sorted=${sorted} sort=${sort} />`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${id(row)} class=${chosen === id(row) ? "chosen" : ""} ...${opening(row, open)}>
            ${columns.map(
              (column) => html`<td key=${column.name} class=${classes(column)} data-title=${column.title}><div>${column.cell(row)}</div></td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * A table of which fifty rows are shown at a time: thousands drawn anew each second would hold the page up.
 * @param {Parameters<typeof Table>[0]} props
 */
export function LongTable(props) {
  const [from, setFrom] = useState(0);
  const { rows } = props;
  const first = from < rows.length ? from : 0;
  const last = Math.min(first + ROWS, rows.length);
  return html`<${Table} ...${props} rows=${rows.slice(first, last)} />
    ${rows.length > ROWS &&
    html`<p class="actions"><span class="quiet">${whole(first + 1)} to ${whole(last)} of ${whole(rows.length)}</span>
      <button type="button" disabled=${first === 0} onClick=${() => setFrom(first - ROWS)}>Before<span class="unseen"> in ${props.caption}</span></button>
      <button type="button" disabled=${last === rows.length} onClick=${() => setFrom(last)}>Next<span class="unseen"> in ${props.caption}</span></button></p>`}`;
}

/** @param {Column} column */
function classes(column) {
  return [column.number && "number", column.wide && "broad"].filter(Boolean).join(" ");
}

/** @param {any} row @param {((row: any) => void) | undefined} open */
function opening(row, open) {
  if (!open) return {};
  return {
    tabindex: 0,
    "data-row": true,
    onClick: (/** @type {MouseEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (!target.closest("a,button,input,label") && !String(getSelection())) open(row);
    },
    onKeyDown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && event.target === event.currentTarget) open(row);
    },
  };
}

/** @param {{ column: Column, sorted?: { by: string, down: boolean }, sort?: (by: string) => void }} props */
function Head({ column, sorted, sort }) {
  if (!column.sort || !sort) return html`<th scope="col" class=${classes(column)}>${column.title}</th>`;
  const here = sorted?.by === column.name;
  return html`<th scope="col" class=${classes(column)} aria-sort=${here ? (sorted.down ? "descending" : "ascending") : "none"}>
    <button type="button" class="sort" onClick=${() => sort(column.name)}>
      ${column.title}<span aria-hidden="true">${here ? (sorted.down ? " ▾" : " ▴") : ""}</span>
    </button>
  </th>`;
}
