/** Rows as files: CSV for spreadsheets, NDJSON (one JSON value a line) for programs. Made in the browser of what it has. */
import { html } from "../app/dom.js";
import { json } from "../app/format.js";

/** Writes a cell of CSV; a text that a spreadsheet would calculate gets an apostrophe. @param {unknown} value */
function cell(value) {
  let text = value === null || value === undefined ? "" : typeof value === "object" ? json(value) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Gives two cells of a key or a value: what it is, and whether that is text or base64; nothing of null. @param {any} record @param {"key"|"value"} name */
export function content(record, name) {
  const base64 = record[`${name}_base64`];
  if (base64 !== undefined) return [base64, "base64"];
  return record[name] === null || record[name] === undefined ? [null, null] : [record[name], "text"];
}

/** @param {string[]} columns @param {unknown[][]} rows */
export function csv(columns, rows) {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** @param {unknown[]} values */
export function ndjson(values) {
  return values.map((value) => json(value) + "\n").join("");
}

/** Has the browser keep a text as a file. @param {string} name @param {string} type @param {string} text */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/**
 * Offers rows as NDJSON and as CSV; nothing where there is none.
 * @param {{
 *   name: string,
 *   columns: string[],
 *   rows: any[],
 *   cells: (row: any) => unknown[],
 *   line?: (row: any) => unknown,
 *   what?: string,
 * }} props `name` is that of the files without its ending, `cells` gives a row of CSV, `line` one of NDJSON: the row itself unless it is said
 */
export function Export({ name, columns, rows, cells, line = (row) => row, what = "what is shown" }) {
  if (rows.length === 0) return null;
  return html`<span class="quiet">Export ${what}:${" "}
    <button type="button" class="link" onClick=${() => save(`${name}.ndjson`, "application/x-ndjson", ndjson(rows.map(line)))}>NDJSON</button>${" "}
    <button type="button" class="link" onClick=${() => save(`${name}.csv`, "text/csv", csv(columns, rows.map(cells)))}>CSV</button></span>`;
}
