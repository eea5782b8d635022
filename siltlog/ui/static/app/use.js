/** Hooks that ask the server. */
import { get } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./dom.js";

const AWAY_MS = 5_000;

/**
 * Asks for something, again when what is asked for changes, and each `everyMs` while the page is seen. What is asked for
 * once (`everyMs` 0) is asked for again while the server is away.
 *
 * What was answered stays while it is asked again; `problem` is why the last time failed.
 * @param {string[] | null} path null: nothing is asked for
 * @param {Record<string, unknown>} [query] @param {number} [everyMs]
 * @param {() => Record<string, unknown>} [moving] what of the query is told anew each time, such as the time it ends at
 * @returns {{ answer: any, problem: any, again: () => void, asking: boolean }}
 */
export function useGet(path, query = {}, everyMs = 0, moving = () => ({})) {
  const key = JSON.stringify([path, query]);
  const [held, setHeld] = useState({ key: "", answer: /** @type {any} */ (null), problem: /** @type {any} */ (null) });
  const [asking, setAsking] = useState(false);
  const [turn, setTurn] = useState(0);
  const underWay = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    underWay.current = stop;
    setAsking(true);
    get(path, { ...query, ...moving() }, { signal: stop.signal })
      .then((answer) => setHeld({ key, answer, problem: null }))
      .catch((problem) => {
        if (stop.signal.aborted) return;
        setHeld((before) => ({ key, answer: before.key === key ? before.answer : null, problem }));
      })
      .finally(() => {
        if (underWay.current !== stop) return;
        underWay.current = null;
        setAsking(false);
      });
    return () => stop.abort();
  }, [key, turn]);
  const current = held.key === key;
  const nextMs = everyMs || (current && held.problem?.away ? AWAY_MS : 0);
  useEffect(() => {
    if (nextMs === 0 || path === null) return undefined;
    // A server that takes longer than the interval is let answer.
    const timer = setInterval(() => document.hidden || underWay.current || setTurn((before) => before + 1), nextMs);
    return () => clearInterval(timer);
  }, [key, nextMs]);
  const again = useCallback(() => setTurn((before) => before + 1), []);
  return { answer: current ? held.answer : null, problem: current ? held.problem : null, again, asking };
}

/**
 * Something that is done at a press: `run` does it once at a time. `clear` forgets what came of it, also of one that
 * still runs.
 * @template T
 * @param {(...given: any[]) => Promise<T>} act
 */
export function useAct(act) {
  const [state, setState] = useState({ busy: false, problem: /** @type {any} */ (null), result: /** @type {any} */ (null) });
  const running = useRef(/** @type {object | null} */ (null));
  /** @param {any[]} given */
  async function run(...given) {
    if (running.current) return undefined;
    const own = {};
    running.current = own;
    setState((before) => ({ ...before, busy: true, problem: null }));
    try {
      const result = await act(...given);
      if (running.current === own) setState({ busy: false, problem: null, result });
      return result;
    } catch (problem) {
      if (running.current === own) setState({ busy: false, problem, result: null });
      return undefined;
    } finally {
      if (running.current === own) running.current = null;
    }
  }
  function clear() {
    running.current = null;
    setState({ busy: false, problem: null, result: null });
  }
  return { ...state, run, clear };
}

/** Gives `value` at most each `ms`, the last one in any case. @template T @param {T} value @param {number} ms @returns {T} */
export function useSeldom(value, ms) {
  const [given, setGiven] = useState(value);
  const last = useRef(-ms);
  useEffect(() => {
    const timer = setTimeout(() => {
      last.current = performance.now();
      setGiven(() => value);
    }, last.current + ms - performance.now());
    return () => clearTimeout(timer);
  }, [value]);
  return given;
}

/** Gives `value` once it has not changed for `ms`. @template T @param {T} value @param {number} ms @returns {T} */
export function useSettled(value, ms = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(() => value), ms);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
