/** How numbers, sizes, durations and times are written. Pure: what depends on the zone takes it. */

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
export const NOTHING = "–";
const GROUPED = new Intl.NumberFormat("en-US");

/** Writes a whole number with separators: 81,201,344. @param {number|null|undefined} n */
export function whole(n) {
  return n === null || n === undefined || Number.isNaN(n) ? NOTHING : GROUPED.format(Math.round(n));
}

/** Writes a number in at most four places: 12.3 k, 81.2 M. @param {number|null|undefined} n */
export function short(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return NOTHING;
  const size = Math.abs(n);
  if (size < 1000) return size >= 100 || Number.isInteger(n) ? String(Math.round(n)) : String(+n.toPrecision(2));
  for (const [unit, letter] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (size >= unit * 0.9995) return `${+(n / unit).toPrecision(3)} ${letter}`;
  }
  return String(n);
}

/** Writes a size in binary units: 9.1 GiB. @param {number|null|undefined} n */
export function bytes(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return NOTHING;
  let size = n;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : +size.toPrecision(3)} ${SIZES[unit]}`;
}

/** Writes a share of 1: 4 %, and 0.3 % below one. @param {number|null|undefined} share */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return NOTHING;
  const of100 = share * 100;
  if (of100 > 0 && of100 < 0.1) return "< 0.1 %";
  return `${of100 < 1 ? +of100.toFixed(1) : Math.round(of100)} %`;
}

/** Writes a duration by its largest unit: 7.4 ms, 42 s, 5 min, 3 h, 12 d. @param {number|null|undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return NOTHING;
  const size = Math.abs(ms);
  if (size < SECOND) return `${+ms.toPrecision(2)} ms`;
  if (size < 10 * SECOND) return `${+(ms / SECOND).toPrecision(2)} s`;
  if (size < 2 * MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (size < 2 * HOUR) return `${Math.round(ms / MINUTE)} min`;
  if (size < 2 * DAY) return `${Math.round(ms / HOUR)} h`;
  return `${Math.round(ms / DAY)} d`;
}

/** @param {number|null|undefined} seconds */
export function seconds(seconds) {
  return seconds === null || seconds === undefined ? NOTHING : duration(seconds * SECOND);
}

/**
 * Writes a moment as 2026-11-21 07:36:00.123, in UTC with a Z behind it.
 * @param {string|number|Date|null|undefined} at @param {string} zone `local` or `utc`
 */
export function time(at, zone) {
  if (at === null || at === undefined || at === "") return NOTHING;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const shifted = zone === "utc" ? date : new Date(date.getTime() - date.getTimezoneOffset() * MINUTE);
  return shifted.toISOString().replace("T", " ").replace("Z", zone === "utc" ? "Z" : "");
}

/** @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

/** Writes JSON; whole numbers that a double does not hold are bigints, and are written as numbers. @param {unknown} value @returns {string} */
export function json(value) {
  // A browser that has read such a number by its digits can write it by them.
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? /** @type {any} */ (JSON).rawJSON(String(each)) : each));
}
