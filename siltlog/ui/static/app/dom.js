/** What every module draws with: Preact, its hooks and htm, from the one vendored module. */
export {
  Component,
  h,
  html,
  render,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/htm-preact-3.1.1.js";
