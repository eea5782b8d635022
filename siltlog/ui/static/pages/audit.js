/** The audit log: who did what, whom it was refused, and whether its chain is whole. */
import { TOPIC, useEvents } from "../audit/events.js";
import { html, useState } from "../app/dom.js";
import { NOTHING, count, time, whole } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { href, setQuery } from "../app/route.js";
import { useLacks, who } from "../app/session.js";
import { useStore } from "../app/store.js";
import { useGet, useSettled } from "../app/use.js";
import { Export } from "../parts/export.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Badge, Field, Heading } from "../parts/form.js";
import { Table } from "../parts/table.js";

const FIELDS = ["principal", "operation", "outcome", "from"];
/** @type {[string, string][]} */
const OUTCOMES = [["", "any"], ["begun", "begun"], ["done", "done"], ["refused", "refused"], ["failed", "failed"]];
const COLUMNS = ["offset", "time", "principal", "credential", "address", "request_id", "operation", "resource", "outcome", "status", "detail", "count", "node", "chain", "seq", "previous", "mac"];

/** @param {{ query: URLSearchParams }} props */
export function Audit({ query }) {
  const caller = useStore(who);
  const lacks = useLacks();
  if (caller === null) return html`<${Heading} title="Audit" />`;
  if (caller.auth === "off") {
    return html`<${Heading} title="Audit" />
      <div class="note"><p><strong>Nothing is recorded:</strong> authentication is off, so this server does not know who asks. <a href=${href(["access"])}>How it is turned on</a></p></div>`;
  }
  const lacking = lacks("read", "topic", TOPIC);
  if (lacking) return html`<${Heading} title="Audit" /><p class="note">${lacking} The role admin has it, or an entry that names it.</p>`;
  const asked = /** @type {any} */ (Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""])));
  return html`
    <${Heading} title="Audit" />
    <p class="quiet">Who changed what, and whom something was refused. What is read and published is not recorded. A change is <em>begun</em> before it is made, and <em>done</em>, <em>refused</em> or <em>failed</em> after.</p>
    <${Chain} />
    <${Asked} asked=${asked} />
    <${Found} asked=${asked} />
  `;
}

/** @param {{ asked: any }} props */
function Asked({ asked }) {
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ ...asked, [name]: event.target.value });
  return html`<form class="row" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Field} label="Who"><input data-search size="16" placeholder="key:etl" value=${asked.principal} onInput=${set("principal")} /><//>
    <${Field} label="Operation"><input size="16" placeholder="deleteTopic" value=${asked.operation} onInput=${set("operation")} /><//>
    <${Field} label="Outcome"><select value=${asked.outcome} onChange=${set("outcome")}>
      ${OUTCOMES.map(([each, name]) => html`<option key=${each} value=${each}>${name}</option>`)}
    </select><//>
    <${Field} label="Since"><input size="20" placeholder="2026-11-21T07:36:00Z" value=${asked.from} aria-invalid=${wrong(asked.from) ? "true" : "false"} onInput=${set("from")} /><//>
    ${FIELDS.some((name) => asked[name] !== "") && html`<button type="button" onClick=${() => setQuery({})}>Show all</button>`}
  </form>
  ${wrong(asked.from) && html`<p class="quiet" role="status">${asked.from} is no time: write it as 2026-11-21T07:36:00Z.</p>`}`;
}

/** @param {string} from */
function wrong(from) {
  return from !== "" && Number.isNaN(Date.parse(from));
}

/** @param {{ asked: any }} props */
function Found({ asked }) {
  const [following, setFollowing] = useState(true);
  const settled = useSettled(JSON.stringify(wrong(asked.from) ? { ...asked, from: "" } : asked), 300);
  return html`<${Events} key=${settled} asked=${JSON.parse(settled)} following=${following} follow=${setFollowing} />`;
}

/** @param {{ asked: any, following: boolean, follow: (on: boolean) => void }} props */
function Events({ asked, following, follow }) {
  const { events, looked, of, ended, reading, problem, more } = useEvents(asked, following);
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  const chosenZone = useStore(zone);
  const columns = [
    { name: "time", title: "Time", cell: (/** @type {any} */ row) => time(row.time ?? row.timestamp, chosenZone).slice(0, 19) },
    { name: "principal", title: "Who", cell: (/** @type {any} */ row) => row.principal || html`<span class="quiet">nobody said who</span>` },
    { name: "operation", title: "Operation", cell: (/** @type {any} */ row) => row.operation },
    { name: "resource", title: "Of what", cell: (/** @type {any} */ row) => row.resource || NOTHING },
    { name: "outcome", title: "Outcome", cell: (/** @type {any} */ row) => html`<${Outcome} row=${row} />` },
    { name: "detail", title: "Detail", wide: true, cell: (/** @type {any} */ row) => html`<span class="cut">${row.detail || NOTHING}</span>` },
  ];
  return html`
    <p class="actions">
      <button type="button" aria-pressed=${following} onClick=${() => follow(!following)}>${following ? "Pause" : "Follow"}</button>
      <span class="quiet" role="status">${reading ? "Reading …" : `${count(events.length, "event")}${ended ? "" : ` in the newest ${whole(looked)} of ${whole(of)}`}`}</span>
      <${Export} name="audit" columns=${COLUMNS} rows=${events} cells=${(/** @type {any} */ row) => COLUMNS.map((each) => row[each])} />
    </p>
    <${Failed} problem=${problem} again=${more} />
    <div class=${chosen ? "beside" : ""}>
      <div>
        <${Table} caption="Events" columns=${columns} rows=${events} id=${(/** @type {any} */ row) => String(row.offset)} open=${setChosen} chosen=${chosen && String(chosen.offset)}
          empty=${reading ? "…" : FIELDS.some((name) => asked[name] !== "") ? "No event fits." : "Nothing was recorded yet."} />
        ${!ended && !reading && problem === null && html`<p><button type="button" onClick=${more}>Look further back</button></p>`}
      </div>
      ${chosen && html`<${InFull} of=${chosen} close=${() => setChosen(null)} />`}
    </div>
  `;
}

/** @param {{ row: any }} props */
function Outcome({ row }) {
  const good = row.outcome === "done" ? true : row.outcome === "begun" ? null : false;
  return html`<${Badge} good=${good}>${[row.outcome, row.status].filter(Boolean).join(" ")}<//>${row.count > 1 && html` <span class="quiet">${whole(row.count)} times</span>`}`;
}

/** @param {{ of: any, close: () => void }} props */
function InFull({ of, close }) {
  const chosenZone = useStore(zone);
  const { timestamp: _, time: at, ...rest } = of;
  return html`<aside aria-label="One event">
    <div class="bar"><h2>${of.operation || "An event"}</h2><button type="button" class="close" aria-label="Close the event" onClick=${close}>×</button></div>
    <dl class="facts">
      <dt>time</dt><dd>${time(at, chosenZone)}</dd>
      ${Object.entries(rest).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd><code>${value === null || value === "" ? NOTHING : String(value)}</code></dd>`)}
    </dl>
    ${of.principal && html`<p><button type="button" class="link" onClick=${() => setQuery({ principal: of.principal })}>All of ${of.principal}</button></p>`}
  </aside>`;
}

/** Says how far this node's chain goes, and how it is proven. */
function Chain() {
  const lacking = useLacks()("admin", "cluster");
  const end = useGet(lacking ? null : ["v1", "access", "audit"], {}, 10_000);
  if (lacking) return html`<p class="quiet">How far the chain goes is for administrators.</p>`;
  return html`<details class="chain">
    <summary>Is it whole? Each record is sealed together with the one before it.</summary>
    <${Loaded} of=${end}>${(/** @type {any} */ said) => html`
      <p>${said.anchor === null ? "This node has recorded nothing yet." : html`The last of this node is record ${whole(said.seq)} of chain <code>${said.chain}</code>.`}
        ${said.unwritten > 0 ? html` <strong>${count(said.unwritten, "record")} wait to be written.</strong>` : " None waits to be written."}</p>
      <p>Where the cluster's secret is, this proves that no record was edited, removed or moved:</p>
      <pre tabindex="0">silt access log --verify</pre>
      ${said.anchor !== null &&
      html`<p>That the end was not cut off shows by an anchor that was noted where nobody who writes the log can reach. This is that of now:</p>
        <pre tabindex="0">silt access log --verify --anchor ${said.anchor}</pre>`}`}
    <//>
  </details>`;
}
