/** Jobs: when each runs, what runs now, what each run did, and one that is begun or stopped by hand. */
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { NOTHING, bytes, duration, time, whole } from "../app/format.js";
import { useLive } from "../app/live.js";
import { zone } from "../app/prefs.js";
import { go, href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useGet } from "../app/use.js";
import { Doing } from "../parts/doing.js";
import { Loaded } from "../parts/failed.js";
import { At } from "../parts/figures.js";
import { Badge, Heading } from "../parts/form.js";
import { literal } from "../parts/snippet.js";
import { Table } from "../parts/table.js";

const EACH_MS = 5_000;
const PAGE = 25;
const FAILED = new Set(["failed", "found_wrong"]);

/** The jobs of the schedule: what each does, what it means that it did not, and when it runs where nobody said otherwise. */
const ABOUT = {
  compact: {
    does: "Merges small files of tables into large ones, and keeps the last record of each key where a topic asks for that.",
    failed: "Nothing is lost: tables have more files meanwhile, and are slower to read. It runs where Java and Spark are; silt doctor says what lacks.",
    cron: "*/10 * * * *",
  },
  retain: {
    does: "Removes records that have expired, as each topic's retention says.",
    failed: "Nothing is lost: what has expired stays a while longer.",
    cron: "5-55/10 * * * *",
  },
  vacuum: {
    does: "Deletes files that no version of a table names any more.",
    failed: "Nothing is lost: such files take up room meanwhile.",
    cron: "40 */6 * * *",
  },
  audit: {
    does: "Reads everything that is stored, and proves that it is whole.",
    failed: "Look at what it says of each topic before files or topics are deleted. A backup has what was whole: silt restore.",
    cron: "20 4 * * 0",
  },
  catalog: {
    does: "Tells a catalog, AWS Glue or Unity Catalog, of the tables, so that engines find topics by name.",
    failed: "Nothing is lost: tables are read by their path meanwhile. Look whether the catalog answers, and what its credentials may do.",
    cron: "25 * * * *",
    needs: ["SILT_CATALOG_GLUE", "SILT_CATALOG_UNITY"],
    command: "catalog register",
  },
};
/** Jobs that only commands run. */
const BY_HAND = "It is run by its own command, not by the schedule.";

/** @param {string} job @returns {{ does: string, failed: string, cron: string, needs?: string[], command?: string } | undefined} */
const about = (job) => ABOUT[/** @type {keyof typeof ABOUT} */ (job)];

/** Gives the schedule, asked for again when a run begins or ends, and the latest run of each job. */
function useSchedule() {
  const schedule = useGet(["v1", "schedule"], {}, EACH_MS);
  const live = useLive("jobs");
  const seen = JSON.stringify([live?.running, live?.latest]);
  useEffect(() => void (document.hidden || schedule.again()), [seen]);
  const latest = new Map((live?.latest ?? []).map((/** @type {any} */ run) => [run.job, run]));
  return { schedule, latest, seen };
}

/** Gives the jobs that are known and those that the schedule tells besides, those that are off too. @param {any} schedule @param {Map<string, any>} latest */
function rowsOf(schedule, latest) {
  const told = new Map(schedule.jobs.map((/** @type {any} */ each) => [each.job, each]));
  const jobs = /** @type {string[]} */ ([...new Set([...Object.keys(ABOUT), ...told.keys()])]);
  return jobs.map((job) => ({ job, at: told.get(job) ?? null, run: latest.get(job) ?? null, runner: schedule.runner }));
}

export function Jobs() {
  const { schedule, latest, seen } = useSchedule();
  return html`
    <${Heading} title="Jobs" />
    <p class="quiet">Jobs keep the tables small and whole. The server runs them by itself. Each may run at any time, and be stopped at any moment, without harm.</p>
    <${Loaded} of=${schedule}>${(/** @type {any} */ said) => html`
      ${said.runner === null && html`<p class="note">Nobody runs the schedule now. A server does with <code>SILT_SCHEDULE=on</code>, another machine by <code>silt schedule</code>;
        after either was killed it takes up to 90 seconds.</p>`}
      <${Table} caption="Schedule" columns=${scheduled(schedule.again)} rows=${rowsOf(said, latest)} id=${(/** @type {any} */ row) => row.job}
        open=${(/** @type {any} */ row) => go(["jobs", row.job])} empty="" />
      <p class="quiet">${said.runner ? `Run by ${said.runner}. ` : ""}A run that is begun here does what a scheduled one does, with the same limits.</p>`}
    <//>
    <h2>What they did</h2>
    <${History} job="" seen=${seen} />
  `;
}

/** @param {() => void} again */
function scheduled(again) {
  return [
    { name: "job", title: "Job", cell: (/** @type {any} */ row) => html`<a href=${href(["jobs", row.job])}>${row.job}</a>` },
    { name: "does", title: "What it does", wide: true, cell: (/** @type {any} */ row) => about(row.job)?.does ?? NOTHING },
    { name: "next", title: "Next run", cell: (/** @type {any} */ row) => html`<${Next} row=${row} />` },
    { name: "last", title: "Last run", cell: (/** @type {any} */ row) => html`<${Last} run=${row.run} />` },
    { name: "act", title: "Now", cell: (/** @type {any} */ row) => html`<div><${Begin} row=${row} again=${again} /></div>` },
  ];
}

/** @param {{ row: any }} props */
function Next({ row }) {
  const chosenZone = useStore(zone);
  if (row.at?.running_since) return html`<${Badge} good=${true}>running for ${duration(Date.now() - Date.parse(row.at.running_since))}<//>`;
  if (row.at === null) {
    return html`<div>${row.runner === null ? "nobody runs it" : html`<strong>off</strong>`}<br /><span class="quiet">switched on by <${Needed} job=${row.job} /><code>SILT_SCHEDULE_${row.job.toUpperCase()}</code>, such as <code>${about(row.job)?.cron}</code>:${" "}
      <a href=${href(["settings"])}>settings</a></span></div>`;
  }
  const { next_at: at, cron, unavailable } = row.at;
  return html`<div>${at ? html`${time(at, chosenZone).slice(0, 16)} <span class="quiet">in ${duration(Math.max(Date.parse(at) - Date.now(), 0))}</span>` : "nobody runs it"}
    <br /><span class="quiet"><code>${cron}</code> in UTC</span>${unavailable && html`<br /><${Badge} good=${false}>not run: ${unavailable}<//>`}</div>`;
}

/** Names the settings of which a job needs one besides its time. @param {{ job: string }} props */
function Needed({ job }) {
  const needs = about(job)?.needs ?? [];
  return needs.length > 0 && html`${needs.map((each, at) => html`${at ? " or " : ""}<code>${each}</code>`)} and `;
}

/** @param {{ run: any }} props */
function Last({ run }) {
  if (run === null) return html`<span class="quiet">none yet</span>`;
  return html`<div><${Outcome} run=${run} /><br /><a class="quiet" href=${href(["jobs", run.job], { run: run.run_id })}><${Ago} at=${run.ended_at} /></a></div>`;
}

/** @param {{ at: string }} props */
function Ago({ at }) {
  const ms = Date.now() - Date.parse(at);
  return html`${ms < 1000 ? "just now" : `${duration(ms)} ago`}`;
}

/** @param {{ run: any }} props */
function Outcome({ run }) {
  const good = FAILED.has(run.outcome) ? false : run.outcome === "succeeded" ? true : null;
  return html`<${Badge} good=${good}>${run.outcome.replace("_", " ")}${run.dry_run ? ", a dry run" : ""}<//>`;
}

/** Begins a job, or stops the run that is under way. @param {{ row: any, again: () => void }} props */
function Begin({ row, again }) {
  const lacks = useLacks();
  const right = lacks("alter", "cluster");
  if (row.at?.running_since && row.at.run_id) {
    return html`<${Doing} key="stop" name="Stop" title=${`Stop ${row.job}`} kind="danger" not=${right} done=${again}
      asked=${[{ method: "DELETE", path: ["v1", "jobs", row.job, "runs", row.at.run_id] }]}
      python=${`stop_job(${literal(row.job)}, ${literal(row.at.run_id)})`}>
      <p>The run gets five seconds, then it is killed. What it committed stays, and nothing is half done. It runs again at its next time.</p>
    <//>`;
  }
  const not = right || (row.runner === null ? "Nobody runs the schedule now." : row.at === null ? "The job is off in the schedule." : "");
  return html`<${Doing} key="run" name="Run now" not=${not} done=${again}
    asked=${[{ method: "POST", path: ["v1", "jobs", row.job, "runs"] }]} python=${`begin_job(${literal(row.job)})`} />`;
}

/** One job. @param {{ path: string[], query: URLSearchParams }} props */
export function Job({ path, query }) {
  const job = path[1];
  const { schedule, latest, seen } = useSchedule();
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["jobs"])}>Jobs</a> › ${job}`} />
    ${about(job) && html`<p>${about(job)?.does}</p>`}
    <${Loaded} of=${schedule}>${(/** @type {any} */ said) => {
      const row = rowsOf(said, latest).find((each) => each.job === job);
      return row === undefined ? html`<p>${BY_HAND}</p>` : html`<dl class="facts">
        <dt>Next run</dt><dd><${Next} row=${row} /></dd>
        <dt>Last run</dt><dd><${Last} run=${row.run} /></dd>
      </dl>
      <p class="actions"><${Begin} row=${row} again=${schedule.again} /></p>`;
    }}<//>
    <${History} job=${job} seen=${seen} run=${query.get("run") ?? ""} />
  `;
}

/** @param {{ job: string, seen: string, run?: string }} props `seen` changes when there may be other runs; `run` is the one to show in full */
function History({ job, seen, run = "" }) {
  const [after, setAfter] = useState("");
  const [failed, setFailed] = useState(false);
  const listed = useGet(["v1", "jobs"], { job, after, limit: PAGE }, 2 * EACH_MS);
  useEffect(() => void (document.hidden || listed.again()), [seen]);
  return html`
    <p><label><input type="checkbox" checked=${failed} onChange=${() => setFailed(!failed)} />Only runs below that failed or found something wrong</label></p>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => {
      const rows = page.jobs.filter((/** @type {any} */ each) => !failed || FAILED.has(each.outcome));
      const found = page.jobs.find((/** @type {any} */ each) => each.run_id === run);
      return html`<div class=${run ? "beside" : ""}>
        <div>
          <${Table} caption="Runs" columns=${RUNS} rows=${rows} id=${(/** @type {any} */ each) => each.run_id} chosen=${run}
            open=${(/** @type {any} */ each) => go(["jobs", each.job], { run: each.run_id })}
            empty=${failed ? "None of these failed." : `No run${job ? ` of ${job}` : ""} yet.`} />
          <p class="actions">
            ${after && html`<button type="button" onClick=${() => setAfter("")}>First page</button>`}
            ${page.next && html`<button type="button" onClick=${() => setAfter(page.next)}>Next ${PAGE}</button>`}
          </p>
        </div>
        ${run && html`<${InFull} run=${found} id=${run} job=${job} />`}
      </div>`;
    }}<//>
  `;
}

const RUNS = [
  { name: "job", title: "Job", cell: (/** @type {any} */ run) => html`<a href=${href(["jobs", run.job], { run: run.run_id })}>${run.job}</a>` },
  { name: "ended", title: "Ended", cell: (/** @type {any} */ run) => html`<${At} at=${run.ended_at} />` },
  { name: "took", title: "Took", number: true, cell: (/** @type {any} */ run) => took(run) },
  { name: "outcome", title: "Outcome", cell: (/** @type {any} */ run) => html`<${Outcome} run=${run} />` },
  { name: "trigger", title: "Begun by", cell: (/** @type {any} */ run) => begun(run) },
  { name: "done", title: "What it did", wide: true, cell: (/** @type {any} */ run) => html`<span class="cut">${run.error ?? done(run.done)}</span>` },
];

/** @param {any} run */
const took = (run) => duration(Date.parse(run.ended_at) - Date.parse(run.started_at));
/** @param {any} run */
const begun = (run) => (run.trigger === "hand" ? "somebody" : "the schedule");

/** Writes what was done: files 12, rows 34,567. @param {Record<string, number>} amounts */
function done(amounts) {
  const said = Object.entries(amounts).map(([name, amount]) => `${name.replaceAll("_", " ")} ${name.endsWith("bytes") ? bytes(amount) : whole(amount)}`);
  return said.join(", ") || "there was nothing to do";
}

/** @param {{ run: any, id: string, job: string }} props */
function InFull({ run, id, job }) {
  const chosenZone = useStore(zone);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [id]);
  const close = html`<button type="button" class="close" aria-label="Close the run" onClick=${() => go(["jobs", job])}>×</button>`;
  if (run === undefined) return html`<aside aria-label="One run"><div class="bar"><h2>Run</h2>${close}</div><p>The run <code>${id}</code> is not among those beside.</p></aside>`;
  return html`<aside ref=${place} aria-label="One run">
    <div class="bar"><h2>${run.job}, <${Outcome} run=${run} /></h2>${close}</div>
    <dl class="facts">
      <dt>Began</dt><dd>${time(run.started_at, chosenZone)}</dd>
      <dt>Took</dt><dd>${took(run)}</dd>
      <dt>Begun by</dt><dd>${begun(run)}</dd>
      <dt>Topics</dt><dd>${run.topics.join(", ") || "all"}</dd>
      <dt>Did</dt><dd>${done(run.done)}</dd>
      <dt>Run</dt><dd><code>${run.run_id}</code></dd>
    </dl>
    ${run.error && html`<pre tabindex="0" aria-label="Error">${run.error}</pre>`}
    <${Advice} run=${run} />
    <h3>By topic</h3>
    <${Table} caption="What it did by topic" columns=${RESULTS} rows=${run.results} id=${(/** @type {any} */ each) => each.topic} empty="It changed no topic." />
  </aside>`;
}

const RESULTS = [
  { name: "topic", title: "Topic", cell: (/** @type {any} */ each) => html`<a href=${href(["topics", each.topic, "files"])}>${each.topic}</a>` },
  { name: "done", title: "Did", cell: (/** @type {any} */ each) => done(each.done) },
  { name: "error", title: "Error", cell: (/** @type {any} */ each) => each.error ?? NOTHING },
];

/** Says what to do about a run that did not succeed. @param {{ run: any }} props */
function Advice({ run }) {
  const command = about(run.job)?.command ?? run.job;
  if (run.outcome === "succeeded") return null;
  if (run.outcome === "interrupted") return html`<p class="note">It was stopped, or its server was. What it had committed stays; it runs again at its next time.</p>`;
  return html`<div class="note">
    <p><strong>What to do.</strong> ${about(run.job)?.failed ?? ""}</p>
    <p>${run.outcome === "failed" ? html`Mend what the error names, then run it now. On the machine that has the tables, <code>silt ${command}</code> says more.` : html`<code>silt ${command}</code> says it again, topic by topic.`}</p>
  </div>`;
}
