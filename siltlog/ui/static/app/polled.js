/** Snapshots made of single calls, where there is no stream of them: as far as these tell it, in the same shape. */

/** @typedef {(path: string[], query?: Record<string, unknown>) => Promise<any>} Get */

const TOPICS = 200;

/** @param {string} kind @param {Get} get */
export async function polled(kind, get) {
  return MADE[/** @type {keyof typeof MADE} */ (kind)](get);
}

const MADE = { overview, topics, groups, jobs };

/** @param {Get} get */
async function overview(get) {
  const [ready, cluster] = await Promise.all([
    get(["readyz"]).catch((problem) => problem.said),
    get(["v1", "cluster"]),
  ]);
  const reasons = (ready.reasons ?? []).map((/** @type {string} */ detail) => ({ detail }));
  const warnings = (ready.warnings ?? []).map((/** @type {string} */ detail) => ({
    kind: "readiness",
    severity: "warn",
    subject: "",
    detail,
  }));
  return {
    ahead_ms: null,
    version: cluster.version,
    node: cluster.nodes[0]?.id ?? "",
    ready: ready.status === "ready",
    reasons,
    nodes: cluster.nodes.map((/** @type {any} */ node) => ({ node: node.id, state: "" })),
    silent: [],
    rates: {},
    attention: warnings,
  };
}

/** @param {Get} get */
async function topics(get) {
  const page = await get(["v1", "topics"], { limit: TOPICS });
  return {
    of: page.next === null ? page.topics.length : null,
    cut: page.next !== null,
    topics: page.topics.map((/** @type {any} */ topic) => ({
      name: topic.name,
      partitions: topic.partitions,
      records: topic.records,
      bytes: topic.bytes,
      files: topic.files,
      groups: [],
    })),
  };
}

/** @param {Get} get */
async function groups(get) {
  const page = await get(["v1", "groups"], { limit: TOPICS });
  return { of: page.next === null ? page.groups.length : null, cut: page.next !== null, groups: page.groups };
}

/** @param {Get} get */
async function jobs(get) {
  const [schedule, runs] = await Promise.all([get(["v1", "schedule"]), get(["v1", "jobs"], { limit: 50 })]);
  const seen = new Set();
  const latest = runs.jobs.filter((/** @type {any} */ run) => !seen.has(run.job) && seen.add(run.job));
  const running = schedule.jobs.filter((/** @type {any} */ job) => job.running_since !== null);
  return { running, latest };
}
