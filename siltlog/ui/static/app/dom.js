/** What every module draws with: Preact, its hooks and htm, from the one vendored module. */
export {
  html,
  render,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/htm-preact-3.1.1.js";
