/** Dead letters: which topics have some. Those of one topic are in `letters.js`. */
import { get } from "../app/api.js";
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { NOTHING, whole } from "../app/format.js";
import { go, href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useGet } from "../app/use.js";
import { Loaded } from "../parts/failed.js";
import { At } from "../parts/figures.js";
import { Heading } from "../parts/form.js";
import { Table } from "../parts/table.js";

export const SUFFIX = ".dlq";
const EACH_MS = 5_000;
const TOPICS = 200;
/** So many topics are asked for their newest letter at once. */
const ASKED_AT_ONCE = 4;

/** @typedef {{ topic: string, count: number | null, newest: any, why: string }} Row */

/** Says what of the rights to read dead letters is missing; nothing where none is. @param {ReturnType<typeof useLacks>} lacks @param {string} topic */
export function unreadable(lacks, topic) {
  return lacks("read", "topic", topic) || lacks("read", "topic", topic + SUFFIX);
}

export function DeadLetters() {
  const listed = useGet(["v1", "topics"], { suffix: SUFFIX, sort: "records", limit: TOPICS }, EACH_MS);
  const topics = (listed.answer?.topics ?? []).filter((/** @type {any} */ topic) => topic.records > 0);
  const rows = useNewest(topics);
  return html`
    <${Heading} title="Dead letters" />
    <p class="quiet">A record that a group could not handle, try after try, is put aside as a dead letter, so that the group goes on
      behind it. Here it is looked at, sent back to its topic once the cause is mended, or discarded.</p>
    <${Loaded} of=${listed}>${(/** @type {any} */ page) => html`
      ${rows === null
        ? html`<p class="quiet" role="status">Looking for the newest of each …</p>`
        : html`<${Table} caption="Topics with dead letters" columns=${COLUMNS} rows=${rows} id=${(/** @type {Row} */ row) => row.topic}
            open=${(/** @type {Row} */ row) => go(["dead_letters", row.topic])} empty="No topic has dead letters. Nothing needs to be done." />`}
      ${page.next && html`<p class="quiet">Only the ${TOPICS} topics with the most are looked at.</p>`}`}
    <//>
  `;
}

const COLUMNS = [
  { name: "topic", title: "Topic", cell: (/** @type {Row} */ row) => html`<a href=${href(["dead_letters", row.topic])}>${row.topic}</a>` },
  { name: "count", title: "Letters", number: true, cell: (/** @type {Row} */ row) => whole(row.count) },
  { name: "newest", title: "Newest", cell: (/** @type {Row} */ row) => html`<${At} at=${row.newest?.dead_letter?.failed_at ?? row.newest?.timestamp} />` },
  { name: "group", title: "Given up by", cell: (/** @type {Row} */ row) => row.newest?.dead_letter?.group ?? NOTHING },
  { name: "error", title: "Because", wide: true, cell: (/** @type {Row} */ row) => html`<span class="cut">${row.why || (row.newest?.dead_letter?.error ?? NOTHING)}</span>` },
];

/**
 * Asks for the count and the newest letter of topics, again where there are others, and ranks them by the newest.
 * @param {any[]} topics those that hold the letters
 * @returns {Row[] | null} null before it is known
 */
function useNewest(topics) {
  const lacks = useLacks();
  const known = useRef(/** @type {Map<string, { state: string, row: Row }>} */ (new Map()));
  const [rows, setRows] = useState(/** @type {Row[] | null} */ (null));
  const wanted = topics.map(({ name, offsets }) => {
    const topic = name.slice(0, -SUFFIX.length);
    const not = unreadable(lacks, topic);
    return { topic, not, state: `${ends(offsets)} ${not}` };
  });
  useEffect(() => {
    const stop = new AbortController();
    const left = wanted.filter(({ topic, state }) => known.current.get(topic)?.state !== state);
    async function work() {
      for (let next = left.pop(); next !== undefined && !stop.signal.aborted; next = left.pop()) {
        const { topic, not, state } = next;
        const row = await looked(topic, not, stop.signal);
        if (row !== null) known.current.set(topic, { state, row });
      }
    }
    Promise.all(Array.from({ length: ASKED_AT_ONCE }, work)).then(() => {
      if (stop.signal.aborted) return;
      const found = wanted.flatMap(({ topic }) => known.current.get(topic)?.row ?? []).filter((row) => row.count !== 0);
      setRows(found.sort((a, b) => newestAt(b).localeCompare(newestAt(a)) || a.topic.localeCompare(b.topic)));
    });
    return () => stop.abort();
  }, [JSON.stringify(wanted)]);
  return rows;
}

/** Writes where partitions begin and end: another text says that there are other letters. @param {any[]} offsets */
function ends(offsets) {
  return offsets.map((/** @type {any} */ each) => `${each.log_start_offset}-${each.high_watermark}`).join(" ");
}

/** @param {Row} row */
function newestAt(row) {
  return row.newest?.dead_letter?.failed_at ?? row.newest?.timestamp ?? "";
}

/** @param {string} topic @param {string} not why it cannot be read @param {AbortSignal} signal @returns {Promise<Row | null>} */
async function looked(topic, not, signal) {
  if (not) return { topic, count: null, newest: null, why: not };
  try {
    const page = await get(["v1", "topics", topic, "dlq"], { limit: 1 }, { signal });
    return { topic, count: page.count, newest: page.dead_letters[0] ?? null, why: "" };
  } catch (problem) {
    if (signal.aborted) return null;
    return { topic, count: null, newest: null, why: /** @type {any} */ (problem).message };
  }
}
