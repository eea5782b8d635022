/** The dead letters of one topic: looked at, sent back, discarded, purged, exported. */
import { get } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, count, time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { href, setQuery } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useGet, useSettled } from "../app/use.js";
import { Doing } from "../parts/doing.js";
import { Export, content } from "../parts/export.js";
import { Failed, Loaded } from "../parts/failed.js";
import { At } from "../parts/figures.js";
import { Badge, Field, Heading } from "../parts/form.js";
import { literal } from "../parts/snippet.js";
import { Table } from "../parts/table.js";
import { RecordInFull, preview } from "../parts/value.js";
import { SUFFIX, unreadable } from "./dead_letters.js";

const PAGE = 50;
const EACH_MS = 5_000;
const PARTITIONS_SAID = 5;

/** @param {any} letter */
const idOf = (letter) => `${letter.partition}:${letter.offset}`;
/** @param {any} letter */
const placeOf = (letter) => ({ partition: letter.partition, offset: letter.offset });

/** @param {{ path: string[], query: URLSearchParams }} props */
export function Letters({ path, query }) {
  const topic = path[1];
  const lacks = useLacks();
  const not = unreadable(lacks, topic);
  const [group, error, after] = ["group", "error", "after"].map((name) => query.get(name) ?? "");
  const page = useGet(not ? null : ["v1", "topics", topic, "dlq"], { group: useSettled(group), after, limit: PAGE }, EACH_MS);
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["dead_letters"])}>Dead letters</a> › ${topic}`}>
      <a href=${href(["topics", topic])}>Topic ${topic}</a>
    <//>
    ${not
      ? html`<p class="note">${not}</p><${Unread} topic=${topic} />`
      : html`<p class="quiet">To send back is to publish them to ${topic} again. To discard hides them for good, and says why; to purge deletes all.</p>
          <${Filters} topic=${topic} group=${group} error=${error} />
          <${Loaded} of=${page}>${(/** @type {any} */ said) => html`<${Loads} topic=${topic} said=${said} group=${group} error=${error} after=${after} again=${page.again} />`}<//>`}
  `;
}

/** @param {{ topic: string, group: string, error: string }} props */
function Filters({ topic, group, error }) {
  const groups = useGet(["v1", "groups"], { topic, limit: 200 }).answer?.groups ?? [];
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ group, error, [name]: event.target.value });
  return html`<div class="row">
    <${Field} label="Given up by the group">
      <input list="groups" size="18" data-search value=${group} placeholder="all" onInput=${set("group")} />
      <datalist id="groups">${groups.map((/** @type {any} */ each) => html`<option key=${each.group} value=${each.group} />`)}</datalist>
    <//>
    <${Field} label="Text in the error (of those below)"><input type="search" size="18" value=${error} onInput=${set("error")} /><//>
  </div>`;
}

/** @param {{ topic: string, said: any, group: string, error: string, after: string, again: () => void }} props */
function Loads({ topic, said, group, error, after, again }) {
  const [open, setOpen] = useState(/** @type {any} */ (null));
  const [picked, setPicked] = useState(/** @type {Set<string>} */ (new Set()));
  const [back, setBack] = useState(/** @type {{ told: any, at: Record<string, string> }} */ ({ told: null, at: {} }));
  const fits = (/** @type {any} */ letter) => !error || (letter.dead_letter?.error ?? "").toLowerCase().includes(error.toLowerCase());
  const shown = said.dead_letters.filter(fits);
  const chosen = shown.filter((/** @type {any} */ letter) => picked.has(idOf(letter)));
  const all = shown.length > 0 && chosen.length === shown.length;
  const toggle = (/** @type {string} */ id) => setPicked((before) => new Set(before.has(id) ? [...before].filter((each) => each !== id) : [...before, id]));
  /** @param {any} answer @param {any[] | null} letters null: all there were */
  function sentBack(answer, letters) {
    const now = new Date().toISOString();
    const ids = (letters ?? said.dead_letters).map(idOf);
    setBack((before) => ({ told: { ...answer, partitions: letters && [...new Set(letters.map((each) => each.partition))] }, at: { ...before.at, ...Object.fromEntries(ids.map((/** @type {string} */ id) => [id, now])) } }));
    again();
  }
  return html`
    <p class="actions">
      <label><input type="checkbox" checked=${all} onChange=${() => setPicked(new Set(all ? [] : shown.map(idOf)))} disabled=${shown.length === 0} />Choose all ${shown.length} below</label>
      <${Actions} topic=${topic} chosen=${chosen} count=${said.count} sentBack=${sentBack} gone=${() => (setPicked(new Set()), setOpen(null), again())} />
    </p>
    ${back.told && html`<${SentBack} topic=${topic} told=${back.told} />`}
    <div class=${open ? "beside" : ""}>
      <div>
        <${Table} caption="Dead letters" columns=${columns(picked, toggle, back.at)} rows=${shown} id=${idOf} open=${setOpen} chosen=${open && idOf(open)}
          empty=${said.dead_letters.length ? "None of this page has that in its error." : group ? `The group ${group} has given up none${said.next ? " of those that were looked at" : ""}.` : "There is no dead letter. Nothing needs to be done."} />
        <p class="actions">
          ${after && html`<a href=${href(["dead_letters", topic], { group, error })}>First page</a>`}
          ${said.next && html`<a href=${href(["dead_letters", topic], { group, error, after: said.next })}>Next ${PAGE}</a>`}
          <span class="quiet">${count(said.count, "dead letter")} in all</span>
          <${Export} name=${`${topic}${SUFFIX}`} rows=${shown} columns=${CSV} cells=${cells} />
        </p>
      </div>
      ${open && html`<${RecordInFull} record=${open} close=${() => setOpen(null)}><${Why} letter=${open} /><//>`}
    </div>
  `;
}

/** @param {Set<string>} picked @param {(id: string) => void} toggle @param {Record<string, string>} at when letters went back */
function columns(picked, toggle, at) {
  const of = (/** @type {any} */ letter) => letter.dead_letter ?? {};
  return [
    { name: "chosen", title: "Choose", cell: (/** @type {any} */ letter) => html`<label><input type="checkbox" checked=${picked.has(idOf(letter))} onChange=${() => toggle(idOf(letter))} />${idOf(letter)}</label>` },
    { name: "when", title: "Given up at", cell: (/** @type {any} */ letter) => html`<div><${At} at=${of(letter).failed_at ?? letter.timestamp} />${at[idOf(letter)] && html`<br /><${Badge} good=${true}>sent back<//> <${At} at=${at[idOf(letter)]} />`}</div>` },
    { name: "group", title: "Group", cell: (/** @type {any} */ letter) => (of(letter).group ? html`<a href=${href(["groups", of(letter).group])}>${of(letter).group}</a>` : NOTHING) },
    { name: "attempts", title: "Attempts", number: true, cell: (/** @type {any} */ letter) => whole(of(letter).attempts) },
    { name: "error", title: "Error", wide: true, cell: (/** @type {any} */ letter) => html`<span class="cut">${of(letter).error ?? "Its headers do not say."}</span>` },
    { name: "value", title: "Value", cell: (/** @type {any} */ letter) => html`<span class="cut mono">${preview(letter, 120)}</span>` },
  ];
}

const CSV = ["partition", "offset", "failed_at", "group", "attempts", "error", "from_partition", "from_offset", "timestamp", "key", "key_encoding", "value", "value_encoding"];

/** @param {any} letter */
function cells(letter) {
  const of = letter.dead_letter ?? {};
  return [letter.partition, letter.offset, of.failed_at, of.group, of.attempts, of.error, of.partition, of.offset, letter.timestamp, ...content(letter, "key"), ...content(letter, "value")];
}

/** @param {{ letter: any }} props */
function Why({ letter }) {
  const chosenZone = useStore(zone);
  const of = letter.dead_letter;
  if (!of) return html`<p class="quiet">Its headers do not say where it came from: it was published here by hand.</p>`;
  return html`<p><strong>${of.group}</strong> gave it up at ${time(of.failed_at, chosenZone)}, after ${count(of.attempts, "attempt")}.
      It was <a href=${href(["topics", of.topic, "records"], { partition: of.partition, offset: of.offset })}>${of.partition}:${whole(of.offset)} of ${of.topic}</a>.</p>
    <pre tabindex="0" aria-label="Error">${of.error}</pre>`;
}

/** Says where letters went. @param {{ topic: string, told: any }} props */
function SentBack({ topic, told }) {
  const to = (told.partitions ?? []).slice(0, PARTITIONS_SAID);
  return html`<div class="note good" role="status">
    <p><strong>${count(told.replayed, "record")}</strong> went back to ${topic}${told.duplicates ? `; ${whole(told.duplicates)} had gone back before` : ""}: at the end of${" "}
      ${to.length
        ? html`partition${to.length > 1 ? "s" : ""} ${to.map((/** @type {number} */ each, /** @type {number} */ at) => html`${at ? ", " : ""}<a href=${href(["topics", topic, "records"], { partition: each })}>${each}</a>`)}${told.partitions.length > to.length ? ", …" : ""}`
        : html`the <a href=${href(["topics", topic, "records"])}>partitions they came from</a>`}.
      Every group that reads ${topic} gets them again. They stay here until they are discarded.</p>
  </div>`;
}

/** @param {{ topic: string, chosen: any[], count: number, sentBack: (answer: any, letters: any[] | null) => void, gone: () => void }} props */
function Actions({ topic, chosen, count: there, sentBack, gone }) {
  const none = chosen.length === 0 ? "Choose some first." : "";
  return html`
    <${Replay} topic=${topic} letters=${chosen} name=${chosen.length ? `Send back ${chosen.length}` : "Send back"} not=${none} sentBack=${sentBack} />
    <${Discard} topic=${topic} letters=${chosen} not=${none} gone=${gone} />
    <${Replay} topic=${topic} letters=${null} name=${`Send back all ${whole(there)}`} not=${there ? "" : "There is none."} sentBack=${sentBack} />
    <${Purge} topic=${topic} not=${there ? "" : "There is none."} gone=${gone} />
  `;
}

/** @param {{ topic: string, letters: any[] | null, name: string, not: string, sentBack: (answer: any, letters: any[] | null) => void }} props */
function Replay({ topic, letters, name, not, sentBack }) {
  const lacks = useLacks();
  const [id, setId] = useState("");
  const body = { replay_id: id, ...(letters && { offsets: letters.map(placeOf) }) };
  const places = letters ? `, ${literal(letters.map((each) => [each.partition, each.offset])).replace(/\[(\d+), (\d+)\]/g, "($1, $2)")}` : "";
  return html`<${Doing} name=${name} title=${`Send dead letters back to ${topic}`} kind=${letters ? "main" : ""}
    not=${lacks("write", "topic", topic) || not}
    asked=${[{ method: "POST", path: ["v1", "topics", topic, "dlq", "replay"], body }]}
    python=${`replay_dead_letters(${literal(topic)}, ${literal(id)}${places})`}
    begin=${() => setId(`page-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`)}
    done=${(/** @type {any} */ answer) => sentBack(answer, letters)}>
    <p>${letters ? count(letters.length, "dead letter goes", "dead letters go") : "All dead letters, of every group, go"} back to <strong>${topic}</strong> as published: the same key, value,
      headers and time, at the end of the partition. Every group that reads it gets them again, those too that had no trouble with them. Do this once the cause is mended.</p>
    <${Field} label="Replay id" hint="Under one id each goes back once: after a failure, try again with the same.">
      <input required value=${id} spellcheck=${false} onInput=${(/** @type {any} */ event) => setId(event.target.value)} />
    <//>
  <//>`;
}

/** @param {{ topic: string, letters: any[], not: string, gone: () => void }} props */
function Discard({ topic, letters, not, gone }) {
  const lacks = useLacks();
  const [reason, setReason] = useState("");
  const places = literal(letters.map((each) => [each.partition, each.offset])).replace(/\[(\d+), (\d+)\]/g, "($1, $2)");
  return html`<${Doing} name=${letters.length ? `Discard ${letters.length}` : "Discard"} title="Discard dead letters" word="discard" kind="danger"
    not=${lacks("delete", "topic", topic) || not}
    asked=${[{ method: "POST", path: ["v1", "topics", topic, "dlq", "discard"], body: { offsets: letters.map(placeOf), reason } }]}
    python=${`discard_dead_letters(${literal(topic)}, ${places}, reason=${literal(reason)})`}
    begin=${() => setReason("")} done=${gone}>
    <p>${count(letters.length, "dead letter is", "dead letters are")} listed and sent back no more, for good. The record itself stays in <strong>${topic}</strong>.</p>
    <${Field} label="Reason" hint="It is kept beside them, and in the audit log.">
      <input maxlength="1000" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} />
    <//>
  <//>`;
}

/** What may be done about letters by one who may not read them. @param {{ topic: string }} props */
function Unread({ topic }) {
  const lacks = useLacks();
  const dead = topic + SUFFIX;
  const held = useGet(lacks("describe", "topic", dead) || lacks("delete", "topic", dead) ? null : ["v1", "topics", dead], {}, EACH_MS);
  if (held.problem?.status === 404) return html`<p>No group has given up a record of ${topic}.</p>`;
  return html`<${Failed} problem=${held.problem} />
    ${held.answer && html`<p>${count(held.answer.records, "record is", "records are")} in <strong>${dead}</strong>. You may delete them without having read them.</p>
      <p class="actions"><${Purge} topic=${topic} not=${held.answer.records ? "" : "There is none."} gone=${held.again} /></p>`}`;
}

/** @param {{ topic: string, not: string, gone: () => void }} props */
function Purge({ topic, not, gone }) {
  const lacks = useLacks();
  const dead = topic + SUFFIX;
  const [bounds, setBounds] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  /** Looks up to where there are letters now: those that come later stay. */
  function look() {
    setBounds([]);
    get(["v1", "topics", dead]).then((said) => (setProblem(null), setBounds(said.offsets)), setProblem);
  }
  return html`<${Doing} name="Purge" title="Purge the dead letters" word=${dead} kind="danger"
    not=${lacks("delete", "topic", dead) || not} begin=${look}
    asked=${bounds.map((each) => ({ method: "DELETE", path: ["v1", "topics", dead, "partitions", String(each.partition), "records"], query: { before_offset: each.high_watermark } }))}
    python=${bounds.map((each) => `delete_records(${literal(dead)}, ${each.partition}, ${each.high_watermark})`).join("\n")}
    done=${gone}>
    <p>All records of <strong>${dead}</strong> up to now are deleted, of every group. Nothing brings them back but a backup. Those that come from now on stay.</p>
    <${Failed} problem=${problem} />
  <//>`;
}
