/** What the columns of a result are, and which chart they make. Pure. */
import { numberOf } from "../app/exact.js";
import { json } from "../app/format.js";
import { SERIES_MAX } from "../parts/chart.js";

const NUMBERS = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|UTINYINT|USMALLINT|UINTEGER|UBIGINT|UHUGEINT|FLOAT|DOUBLE|DECIMAL)\b(?!.*\[)/;
const TIMES = /^(TIMESTAMP|DATE)(?!.*\[)/;

/** @param {string} type as the server calls it */
export function isNumber(type) {
  return NUMBERS.test(type);
}

/** Writes a value as one line. @param {any} value */
export function written(value) {
  if (value === null) return "NULL";
  if (typeof value !== "object") return String(value);
  const names = Object.keys(value);
  return names.length === 1 && names[0] === "base64" ? `base64 ${value.base64}` : json(value);
}

/**
 * Gives what may be drawn: numbers over a time, one line for each text where there is one text beside them; else a bar
 * a row for the first number; null where there is no number, or nothing to draw.
 * @param {{ columns: { name: string, type: string }[], rows: any[][] }} result
 */
export function charted({ columns, rows }) {
  const places = columns.map((_, at) => at);
  const time = places.find((at) => TIMES.test(columns[at].type));
  const numbers = places.filter((at) => isNumber(columns[at].type));
  const others = places.filter((at) => at !== time && !numbers.includes(at));
  if (rows.length === 0 || numbers.length === 0) return null;
  if (time !== undefined) return overTime(columns, rows, time, numbers, others);
  const of = numbers[numbers.length - 1];
  const label = places.filter((at) => at !== of);
  const bars = rows.map((row, at) => ({ name: label.length ? label.map((each) => written(row[each])).join(" · ") : `row ${at + 1}`, value: row[of] === null ? null : numberOf(row[of]) }));
  return { kind: "bars", title: columns[of].name, bars };
}

/** @param {{ name: string, type: string }[]} columns @param {any[][]} rows @param {number} time @param {number[]} numbers @param {number[]} others */
function overTime(columns, rows, time, numbers, others) {
  const zoned = /TIME ZONE/.test(columns[time].type);
  const moment = (/** @type {any} */ value) => (zoned || !String(value).includes("T") ? String(value) : `${value}Z`);
  const known = rows.filter((row) => row[time] !== null);
  const times = [...new Set(known.map((row) => moment(row[time])))].sort((a, b) => Date.parse(a) - Date.parse(b));
  const index = new Map(times.map((at, place) => [at, place]));
  /** @type {Map<string, (number|null)[]>} */
  const series = new Map();
  for (const row of known) {
    const whose = others.map((each) => written(row[each])).join(" · ");
    for (const at of numbers) {
      const name = [whose, (numbers.length > 1 || whose === "") && columns[at].name].filter(Boolean).join(" ");
      if (!series.has(name)) series.set(name, times.map(() => null));
      /** @type {(number|null)[]} */ (series.get(name))[/** @type {number} */ (index.get(moment(row[time])))] = row[at] === null ? null : numberOf(row[at]);
    }
  }
  const drawn = [...series].map(([name, values]) => ({ name, values }));
  const left = drawn.length > SERIES_MAX ? `, the first ${SERIES_MAX} of ${drawn.length}` : "";
  return { kind: "times", title: numbers.map((at) => columns[at].name).join(", ") + left, times, series: drawn.slice(0, SERIES_MAX) };
}
