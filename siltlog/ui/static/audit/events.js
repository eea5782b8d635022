/** Events of the audit log, read backwards from its end, and as they come. */
import { get } from "../app/api.js";
import { useEffect, useRef, useState } from "../app/dom.js";

export const TOPIC = "_audit";
const PAGE = 1_000;
const PAGE_BYTES = 16 * 1024 * 1024;
/** So many are found before it waits to be asked for more. */
const FOUND = 100;
/** So many are looked at for that, however few are found. */
const LOOKED = 20_000;
const KEPT_MAX = 5_000;
const FOLLOW_MS = 2_000;

/** @typedef {{ principal: string, operation: string, outcome: string, from: string }} Asked */

/** Reads a record as an event. @param {any} record */
function event(record) {
  try {
    return { ...JSON.parse(record.value), offset: record.offset, timestamp: record.timestamp };
  } catch {
    // Whoever may write the topic may write anything.
    return { offset: record.offset, timestamp: record.timestamp, operation: "", outcome: "", detail: String(record.value ?? "") };
  }
}

/** Tells whether an event is one of those that are asked for. @param {any} each @param {Asked} asked */
export function fits(each, asked) {
  const has = (/** @type {unknown} */ whole, /** @type {string} */ part) => String(whole ?? "").toLowerCase().includes(part.toLowerCase());
  const since = asked.from === "" ? -Infinity : Date.parse(asked.from);
  return has(each.principal, asked.principal) && has(each.operation, asked.operation) && (asked.outcome === "" || each.outcome === asked.outcome) && !(Date.parse(each.timestamp) < since);
}

/**
 * Gives the events that fit, the newest first, with those that come while `following`.
 * @param {Asked} asked @param {boolean} following
 */
export function useEvents(asked, following) {
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  const [state, setState] = useState({ looked: 0, of: 0, ended: false, reading: true });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [turn, setTurn] = useState(0);
  const at = useRef(/** @type {{ start: number, end: number, lowest: number } | null} */ (null));
  const add = (/** @type {any[]} */ came) =>
    setEvents((before) => {
      const shown = new Set(before.map((each) => each.offset));
      const fresh = came.filter((each) => !shown.has(each.offset) && fits(each, asked));
      return [...before, ...fresh].sort((a, b) => b.offset - a.offset).slice(0, KEPT_MAX);
    });

  useEffect(() => {
    const stop = new AbortController();
    setProblem(null);
    setState((before) => ({ ...before, reading: true }));
    back(stop.signal).catch((failed) => stop.signal.aborted || (setProblem(failed), setState((before) => ({ ...before, reading: false }))));
    return () => stop.abort();
  }, [turn]);

  /** Reads from where it stands towards the start. @param {AbortSignal} signal */
  async function back(signal) {
    if (at.current === null) {
      const [bounds] = (await get(["v1", "topics", TOPIC], {}, { signal })).offsets;
      at.current = { start: bounds.log_start_offset, end: bounds.high_watermark, lowest: bounds.high_watermark };
    }
    const place = at.current;
    let found = 0;
    let looked = 0;
    let old = false;
    while (place.lowest > place.start && found < FOUND && looked < LOOKED && !old) {
      const first = Math.max(place.start, place.lowest - PAGE);
      const records = await page(first, place.lowest, signal);
      const came = records.map(event);
      add(came);
      found += came.filter((each) => fits(each, asked)).length;
      looked += records.length;
      old = asked.from !== "" && came.length > 0 && Date.parse(came[0].timestamp) < Date.parse(asked.from);
      place.lowest = first;
    }
    setState({ looked: place.end - place.lowest, of: place.end - place.start, ended: old || place.lowest <= place.start, reading: false });
  }

  useEffect(() => {
    const place = at.current;
    if (!following || state.reading || place === null) return undefined;
    const stop = new AbortController();
    let busy = false;
    async function on() {
      if (busy || document.hidden || place === null) return;
      busy = true;
      try {
        const { records, next_offset: next } = await some(place.end, PAGE, stop.signal);
        add(records.map(event));
        setState((before) => ({ ...before, looked: before.looked + next - place.end, of: before.of + next - place.end }));
        place.end = next;
        setProblem(null);
      } catch (failed) {
        if (!stop.signal.aborted) setProblem(failed);
      } finally {
        busy = false;
      }
    }
    void on();
    const timer = setInterval(on, FOLLOW_MS);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [following, state.reading]);

  return { events, ...state, problem, more: () => setTurn((before) => before + 1) };
}

/** Reads so many records at most. @param {number} offset @param {number} records @param {AbortSignal} signal */
function some(offset, records, signal) {
  return get(["v1", "topics", TOPIC, "partitions", "0", "records"], { offset, max_records: records, max_bytes: PAGE_BYTES }, { signal });
}

/** Reads all records of a range, however many answers that takes. @param {number} first @param {number} end @param {AbortSignal} signal */
async function page(first, end, signal) {
  const records = [];
  let next = first;
  while (next < end) {
    const answer = await some(next, end - next, signal);
    records.push(...answer.records);
    if (!(answer.next_offset > next)) break;
    next = answer.next_offset;
  }
  return records;
}
