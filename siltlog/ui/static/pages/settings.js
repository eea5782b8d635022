/** Settings: each value, where it is from, and whether it can change while the server runs. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { bytes, count, duration } from "../app/format.js";
import { setQuery } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useAct, useGet } from "../app/use.js";
import { Dialog } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Field, Heading } from "../parts/form.js";
import { AsCode, asCurl, literal, withAdmin } from "../parts/snippet.js";
import { Table } from "../parts/table.js";

const PATH = ["v1", "config"];
/** Where a value is from, in words. @type {Record<string, string>} */
const ORIGINS = { default: "the default", file: "siltlog.toml", changed: "changed while it ran", environment: "a variable", flag: "a flag" };
/** @type {[string, string][]} */
const SHOWN = [["", "all"], ["set", "not as by default"], ["hot", "can change now"]];

/** Writes a value as people read it. @param {any} value @param {string} unit */
function written(value, unit) {
  if (value === "") return "";
  const amount = Number(value);
  if (unit === "" || amount < 0 || Number.isNaN(amount)) return String(value);
  return unit === "ms" ? duration(amount) : bytes(amount);
}

/** @param {{ value: any, unit: string }} props */
function Value({ value, unit }) {
  const text = written(value, unit);
  if (text === "") return html`<i class="null">empty</i>`;
  const exact = `${value}${unit === "ms" ? " ms" : ""}`;
  return html`<code>${text}</code>${text !== exact && text !== String(value) && html` <span class="quiet">${exact}</span>`}`;
}

/** Shows what a setting is, what stands between backquotes as code. @param {{ text: string }} props */
function About({ text }) {
  return text.split("`").map((part, at) => (at % 2 === 1 ? html`<code key=${at}>${part}</code>` : part));
}

/** @param {{ query: URLSearchParams }} props */
export function Settings({ query }) {
  const lacks = useLacks();
  const text = query.get("filter") ?? "";
  const shown = query.get("show") ?? "";
  const lacking = lacks("describe", "cluster");
  const read = useGet(lacking ? null : PATH);
  const [changing, setChanging] = useState("");
  const [done, setDone] = useState("");
  if (lacking) return html`<${Heading} title="Settings" /><p class="note">${lacking}</p>`;
  return html`
    <${Heading} title="Settings" />
    <p class="quiet">What this node goes by. Some settings change while it runs; the others are written in <code>siltlog.toml</code>, or set as variables, and take a restart.</p>
    <form class="row" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${Field} label="Text in a name or what it says"><input type="search" data-search value=${text} onInput=${(/** @type {any} */ event) => setQuery({ filter: event.target.value, show: shown })} /><//>
      <${Field} label="Show"><select value=${shown} onChange=${(/** @type {any} */ event) => setQuery({ filter: text, show: event.target.value })}>
        ${SHOWN.map(([each, name]) => html`<option key=${each} value=${each}>${name}</option>`)}
      </select><//>
    </form>
    ${done && html`<p role="status">${done}</p>`}
    <${Loaded} of=${read}>${(/** @type {any} */ config) => html`
      <${Listed} config=${config} text=${text} shown=${shown} change=${(/** @type {string} */ name) => (setDone(""), setChanging(name))} />
      ${changing && html`<${Changing} key=${changing} name=${changing} config=${config} again=${read.again} close=${() => setChanging("")} tell=${setDone} />`}`}
    <//>
  `;
}

/** @param {{ config: any, text: string, shown: string, change: (name: string) => void }} props */
function Listed({ config, text, shown, change }) {
  const lacks = useLacks();
  const wanted = text.toLowerCase();
  const all = Object.entries(config.settings).map(([name, setting]) => ({ name, .../** @type {any} */ (setting) }));
  const rows = all.filter(
    (row) =>
      `${row.name} ${row.about} ${row.value}`.toLowerCase().includes(wanted) &&
      (shown === "" || (shown === "set" ? row.origin !== "default" : !row.restart)),
  );
  const columns = [
    { name: "name", title: "Setting", wide: true, cell: (/** @type {any} */ row) => html`<div><strong class="mono">${row.name}</strong><div class="quiet"><${About} text=${row.about} /></div></div>` },
    { name: "value", title: "Value", cell: (/** @type {any} */ row) => html`<div class="value"><${Value} value=${row.value} unit=${row.unit} />${row.waiting && html`<div class="quiet">Written otherwise since: that waits for a restart.</div>`}</div>` },
    { name: "origin", title: "Set by", cell: (/** @type {any} */ row) => html`<div>${ORIGINS[row.origin]}${row.place && html`<div class="quiet"><code>${row.place}</code></div>`}</div>` },
    { name: "default", title: "By default", cell: (/** @type {any} */ row) => written(row.default, row.unit) || html`<i class="null">empty</i>` },
    {
      name: "change",
      title: "Changes",
      cell: (/** @type {any} */ row) =>
        row.restart
          ? html`<span class="quiet">with a restart</span>`
          : html`<div><${Action} not=${fixed(row) || lacks("alter", "cluster")} act=${() => change(row.name)}>Change<span class="unseen"> ${row.name}</span> …<//>${fixed(row) && html`<div class="quiet">${fixed(row)}</div>`}</div>`,
    },
  ];
  return html`
    <p class="quiet" role="status">${count(rows.length, "setting")} of ${all.length}.</p>
    <${Table} caption="Settings" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.name}
      empty=${text ? `No setting has ${text} in its name or in what it says.` : shown === "set" ? "Every setting is as by default." : ""} />
    <p class="quiet">Changes are kept in <code>${config.path}</code>, over <code>siltlog.toml</code> and under variables and flags. Secrets are not told.</p>
  `;
}

/** Says why a setting that can change cannot here; empty where it can. @param {any} setting */
function fixed(setting) {
  if (setting.origin !== "environment" && setting.origin !== "flag") return "";
  return `${setting.place} sets it, over whatever is changed here: start the server without that.`;
}

/** @param {{ name: string, config: any, again: () => void, close: () => void, tell: (text: string) => void }} props */
function Changing({ name, config, again, close, tell }) {
  const setting = config.settings[name];
  const [value, setValue] = useState(String(setting.value));
  const given = /^-?\d+$/.test(value) && typeof setting.value === "number" ? Number(value) : value;
  const headers = { "If-Match": `"${config.version}"` };
  const change = useAct(async (/** @type {any} */ to) => {
    const now = await call("PATCH", PATH, { body: { changes: { [name]: to } }, headers });
    const { value: held, unit } = now.settings[name];
    tell(`${name} is ${written(held, unit) || "empty"} now; it was ${written(setting.value, unit) || "empty"}.`);
    again();
    close();
  });
  const code = (/** @type {any} */ to) => ({
    curl: asCurl({ method: "PATCH", path: PATH, body: { changes: { [name]: to } }, headers }),
    python: withAdmin(`change_config(${literal({ [name]: to })}, version=${literal(config.version)})`),
  });
  const same = String(given) === String(setting.value);
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (!same) void change.run(given);
  }
  const write = (/** @type {any} */ event) => setValue(event.target.value);
  return html`<${Dialog} title=${`Change ${name}`} close=${close}>
    <form onSubmit=${submit}>
      <p><${About} text=${setting.about} /></p>
      <${Field} label="To" hint=${HINTS[setting.unit] ?? ""}>
        ${setting.choices.length > 0
          ? html`<select value=${value} onChange=${write}>${setting.choices.map((/** @type {string} */ each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`
          : html`<input autocomplete="off" spellcheck=${false} value=${value} onInput=${write} />`}
      <//>
      <dl class="facts"><dt>Now</dt><dd><${Value} value=${setting.value} unit=${setting.unit} /></dd>
        <dt>Then</dt><dd>${same ? html`<span class="quiet">the same</span>` : html`<${Value} value=${given} unit=${setting.unit} />`}</dd></dl>
      <p class="quiet">It holds at once, and after a restart.</p>
      <${Failed} problem=${change.problem} />
      ${change.problem?.code === "config_changed" &&
      html`<p class="note">Somebody else changed a setting since these were shown. <button type="button" class="link" onClick=${again}>Load them again</button>, look whether this still fits, and save once more.</p>`}
      ${change.problem?.status === 429 && change.problem.said.retry_after_ms && html`<p class="quiet">It goes again in ${duration(change.problem.said.retry_after_ms)}.</p>`}
      <p class="actions">
        <${Action} kind="main" busy=${change.busy} type="submit" not=${same ? "It is that already." : ""}>Save<//>
        <${AsCode} shown=${code(given)} />
        ${setting.origin === "changed" && html`<button type="button" disabled=${change.busy} onClick=${() => change.run(null)}>Take the change back</button>
          <${AsCode} shown=${code(null)} of="taking it back" />`}
        <button type="button" onClick=${close}>Cancel</button>
      </p>
    </form>
  <//>`;
}

/** @type {Record<string, string>} */
const HINTS = { ms: "A number of milliseconds, or with a unit: 500ms, 2s, 5m, 1h, 7d.", bytes: "A number of bytes, or with a unit: 64MiB, 4GiB." };
