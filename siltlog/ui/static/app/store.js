/** A value that components follow: `useStore` draws again when it is set. */
import { useEffect, useState } from "./dom.js";

/**
 * @template T
 * @param {T} first
 */
export function store(first) {
  let value = first;
  /** @type {Set<(value: T) => void>} */
  const followers = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const follower of [...followers]) follower(value);
    },
    /** @param {(value: T) => void} follower */
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
  };
}

/**
 * @template T
 * @param {{ get: () => T, follow: (follower: (value: T) => void) => () => void }} from
 * @returns {T}
 */
export function useStore(from) {
  const [value, setValue] = useState(from.get());
  useEffect(() => {
    setValue(() => from.get());
    return from.follow((next) => setValue(() => next));
  }, [from]);
  return value;
}
