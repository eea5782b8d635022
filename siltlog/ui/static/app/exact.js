/** JSON without loss: numbers that a double does not hold stay as they were sent. Pure. */

// It came to browsers together with the source of a number: where it is missing a number is what a double makes of it.
const { rawJSON, isRawJSON } = /** @type {any} */ (JSON);

/** A double holds any number of so many digits. */
const DIGITS_HELD = 15;

/**
 * Reads an answer, its numbers as they were sent: a whole one that a double does not hold becomes a bigint, another what
 * `numberOf` and `JSON.stringify` understand. @param {string} text
 */
export function exact(text) {
  return read(text, (value, source = "") => {
    if (/^-?\d+$/.test(source)) return Number.isSafeInteger(value) ? value : BigInt(source);
    return rawJSON && digits(source) > DIGITS_HELD && source !== String(value) ? rawJSON(source) : value;
  });
}

/** @param {string} source of a number */
function digits(source) {
  return source.replace(/e.*$/i, "").replace(/[-.]/g, "").replace(/^0+/, "").length;
}

/** Gives the double that is closest to a number that `exact` gave. @param {any} value */
export function numberOf(value) {
  return Number(isRawJSON?.(value) ? value.rawJSON : value);
}

/** Reads a value so that `JSON.stringify` writes its numbers as they are. @param {string} text */
export function asSent(text) {
  return read(text, (value, source) => (rawJSON && source !== undefined && source !== String(value) ? rawJSON(source) : value));
}

/** @param {string} text @param {(value: number, source: string | undefined) => any} number */
function read(text, number) {
  return JSON.parse(text, (/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context = undefined) =>
    typeof value === "number" ? number(value, context?.source) : value,
  );
}

/** @param {any} value as `asSent` gave it */
export function isNumber(value) {
  return typeof value === "number" || isRawJSON?.(value) === true;
}
