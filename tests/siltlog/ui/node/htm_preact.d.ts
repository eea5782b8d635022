// What the page uses of Preact, its hooks and htm.
type Cleanup = void | (() => void);
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(drawn: any, place: Element): void;
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => Cleanup, inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => Cleanup, inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useCallback<T>(callback: T, inputs: readonly unknown[]): T;
export function useRef<T>(first: T): { current: T };
