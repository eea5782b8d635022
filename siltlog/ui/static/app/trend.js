/** Where measured values are going: a line through them, by least squares. Pure. */

const POINTS_MIN = 10;
/** A line says something where it accounts for so much of how the values differ. */
const EXPLAINED_MIN = 0.8;
const DAY_MS = 86_400_000;
/** What is further away than this nobody can tell from a day's values. */
const AHEAD_MS_MAX = 60 * DAY_MS;
/** A lag that changes by less than this share of itself within the time that is looked at stays. */
const STEADY_SHARE = 0.1;

/**
 * @param {(string|number)[]} times @param {(number|null)[]} values
 * @returns {{ perMs: number, last: number, explained: number } | null} null: too few values
 */
export function line(times, values) {
  const points = /** @type {[number, number][]} */ ([]);
  values.forEach((value, at) => value !== null && points.push([new Date(times[at]).getTime(), value]));
  if (points.length < POINTS_MIN) return null;
  const origin = points[points.length - 1][0];
  const meanX = mean(points.map(([x]) => x - origin));
  const meanY = mean(points.map(([, y]) => y));
  let both = 0;
  let across = 0;
  let up = 0;
  for (const [x, y] of points) {
    both += (x - origin - meanX) * (y - meanY);
    across += (x - origin - meanX) ** 2;
    up += (y - meanY) ** 2;
  }
  if (across === 0) return null;
  const perMs = both / across;
  return { perMs, last: meanY - perMs * meanX, explained: up === 0 ? 1 : (perMs * both) / up };
}

/** @param {number[]} values */
function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/**
 * Tells in how many milliseconds values that fall will be 0; null where they do not fall evenly, or that is far away.
 * @param {(string|number)[]} times @param {(number|null)[]} values
 */
export function gone(times, values) {
  const fitted = line(times, values);
  if (fitted === null || fitted.perMs >= 0 || fitted.explained < EXPLAINED_MIN) return null;
  const ms = Math.max(fitted.last, 0) / -fitted.perMs;
  return ms <= AHEAD_MS_MAX ? ms : null;
}

/**
 * Tells whether values rise, fall or stay, by the means of both halves; empty where there are too few.
 * @param {(number|null)[]} values @returns {"rises"|"falls"|"stays"|""}
 */
export function direction(values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null));
  if (known.length < POINTS_MIN) return "";
  const half = Math.floor(known.length / 2);
  const before = mean(known.slice(0, half));
  const after = mean(known.slice(half));
  if (Math.abs(after - before) <= STEADY_SHARE * Math.max(before, after)) return "stays";
  return after > before ? "rises" : "falls";
}
