/** What metrics were, from `/v1/metrics/history`, each ten seconds anew, or each minute of a long time. */
import { useGet } from "./use.js";

const EACH_MS = 10_000;
const EACH_MS_MAX = 60_000;
const STEPS = 180;

/**
 * @param {{ series: string[], ms: number, topic?: string, group?: string, steps?: number }} asked `ms` is how far back, in at most so many `steps`
 */
export function useHistory({ series, ms, topic, group, steps = STEPS }) {
  const asked = useGet(
    ["v1", "metrics", "history"],
    { series: series.join(","), topic, group, step_ms: Math.ceil(ms / steps) },
    Math.min(Math.max(ms / steps, EACH_MS), EACH_MS_MAX),
    () => ({ from: Date.now() - ms }),
  );
  return { ...past(asked.answer), problem: asked.problem };
}

/** @param {any} answer */
function past(answer) {
  /** @type {{ name: string, labels: Record<string, string>, values: (number|null)[] }[]} */
  const all = answer?.series ?? [];
  return {
    times: /** @type {string[]} */ (answer?.times ?? []),
    /** The nodes that did not answer. */
    silent: /** @type {{ node: string, reason: string }[]} */ (answer?.silent ?? []),
    asked: answer !== null,
    /** Gives the values of one series: of the node where no label says otherwise. @param {string} name @param {Record<string, string>} [labels] */
    one(name, labels = {}) {
      const wanted = JSON.stringify(Object.entries(labels).sort());
      const found = all.find((each) => each.name === name && JSON.stringify(Object.entries(each.labels).sort()) === wanted);
      return found?.values ?? [];
    },
    /** Gives the series of a metric that have a label, the highest at last first. @param {string} name @param {string} label */
    by(name, label) {
      const last = (/** @type {(number|null)[]} */ values) => values.findLast((value) => value !== null) ?? 0;
      return all
        .filter((each) => each.name === name && label in each.labels)
        .map((each) => ({ name: each.labels[label], values: each.values }))
        .sort((a, b) => last(b.values) - last(a.values));
    },
  };
}
