/** A record in full: its value pretty, raw or as bytes. Values are text nodes only, whatever they say. */
import { html, useEffect, useMemo, useRef, useState } from "../app/dom.js";
import { asSent } from "../app/exact.js";
import { NOTHING, bytes, time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { useStore } from "../app/store.js";

const SHOWN_BYTES_MAX = 64 * 1024;
const HEX_ROW_BYTES = 16;
const WAYS = ["pretty", "raw", "hex"];

/** Gives the bytes of a value, or null for a tombstone. @param {any} record */
export function bytesOf(record) {
  if (record.value_base64 !== undefined) return Uint8Array.from(atob(record.value_base64), (letter) => letter.charCodeAt(0));
  if (record.value === null || record.value === undefined) return null;
  return new TextEncoder().encode(String(record.value));
}

/** Writes a key, null or in base64 too. @param {any} record */
export function keyOf(record) {
  if (record.key_base64 !== undefined) return `base64 ${record.key_base64}`;
  return record.key ?? NOTHING;
}

/** Writes the beginning of a value in one line. @param {any} record @param {number} max letters */
export function preview(record, max = 300) {
  if (record.value_base64 !== undefined) return `base64 ${record.value_base64.slice(0, max)}`;
  if (record.value === null || record.value === undefined) return "∅ tombstone";
  return String(record.value).slice(0, max);
}

/** @param {any} record */
function pretty(record) {
  if (record.value_base64 !== undefined || record.value === null || record.value === undefined) return preview(record, SHOWN_BYTES_MAX);
  if (record.value.length > SHOWN_BYTES_MAX) return record.value;
  try {
    return JSON.stringify(asSent(record.value), null, 2);
  } catch {
    // Not JSON, or so deep that it cannot be read as such.
    return record.value;
  }
}

/** Writes bytes as offsets, hexadecimal digits and letters. @param {Uint8Array} content */
export function hex(content) {
  const rows = [];
  for (let at = 0; at < Math.min(content.length, SHOWN_BYTES_MAX); at += HEX_ROW_BYTES) {
    const row = content.subarray(at, at + HEX_ROW_BYTES);
    const digits = [...row].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = [...row].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(HEX_ROW_BYTES * 3)} ${letters}`);
  }
  return rows.join("\n");
}

/** @param {{ record: any, close: () => void, children?: any }} props `children` is what else there is to say of it */
export function RecordInFull({ record, close, children }) {
  const chosenZone = useStore(zone);
  const [way, setWay] = useState("pretty");
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const content = useMemo(() => bytesOf(record), [record]);
  const text = useMemo(() => {
    const whole = way === "hex" ? (content === null ? "" : hex(content)) : way === "raw" ? preview(record, SHOWN_BYTES_MAX) : pretty(record);
    return whole.slice(0, SHOWN_BYTES_MAX * 4);
  }, [record, way]);
  // Where the window is narrow it is below the list.
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [record]);
  return html`<aside ref=${place} aria-label="One record">
    <div class="bar">
      <h2>${record.partition}:${whole(record.offset)}</h2>
      <button type="button" class="close" aria-label="Close the record" onClick=${close}>×</button>
    </div>
    ${children}
    <dl class="facts">
      <dt>Key</dt><dd><code>${keyOf(record)}</code></dd>
      <dt>Time</dt><dd>${time(record.timestamp, chosenZone)}</dd>
      <dt>Size</dt><dd>${content === null ? "null: a tombstone" : bytes(content.length)}</dd>
      ${record.headers.map((/** @type {any} */ header, /** @type {number} */ at) => html`<dt key=${`${at} ${header.key}`}>${header.key}</dt>
        <dd><code>${header.value_base64 !== undefined ? `base64 ${header.value_base64}` : (header.value ?? "null")}</code></dd>`)}
    </dl>
    <fieldset class="choice"><legend>Value</legend>
      ${WAYS.map((each) => html`<label key=${each}><input type="radio" name="way" checked=${each === way} onChange=${() => setWay(each)} />${each}</label>`)}
    </fieldset>
    <pre tabindex="0" aria-label="Value">${text}</pre>
    ${content !== null && content.length > SHOWN_BYTES_MAX && html`<p class="quiet">Cut after ${bytes(SHOWN_BYTES_MAX)} of ${bytes(content.length)}.</p>`}
  </aside>`;
}
