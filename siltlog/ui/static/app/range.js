/** How far back charts go, as the address says it. Pure. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** Each range: what stands in the address, its words, in short, its length. @type {[string, string, string, number][]} */
export const RANGES = [
  ["5m", "5 minutes", "5 min", 5 * MINUTE],
  ["15m", "15 minutes", "15 min", 15 * MINUTE],
  ["1h", "hour", "1 h", HOUR],
  ["24h", "24 hours", "24 h", 24 * HOUR],
  ["30d", "30 days", "30 d", 30 * 24 * HOUR],
];
const USUAL = "1h";

/** Gives the range that an address asks for; the usual one where it asks for none that there is. @param {URLSearchParams} query */
export function rangeOf(query) {
  const asked = query.get("range");
  const found = RANGES.find(([name]) => name === asked) ?? RANGES.find(([name]) => name === USUAL);
  const [name, words, text, ms] = /** @type {[string, string, string, number]} */ (found);
  return { name, words, text, ms };
}
