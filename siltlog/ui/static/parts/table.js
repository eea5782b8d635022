/** Tables: real ones, which become cards where the window is narrow. */
import { html } from "../app/dom.js";

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
              (column) => html`<td key=${column.name} class=${classes(column)} data-title=${column.title}>${column.cell(row)}</td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
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
