/** The tables of a query: the topics that may be read. A press puts a name at the cursor. */
import { html, useState } from "../app/dom.js";
import { useLacks } from "../app/session.js";
import { useGet, useSettled } from "../app/use.js";
import { Loaded } from "../parts/failed.js";
import { Field } from "../parts/form.js";
import { COLUMNS, quoted } from "./names.js";

const PAGE = 50;

/** Asks for the topics whose names begin so; `readable` are those of them that may be read. @param {string} prefix */
export function useTables(prefix) {
  const lacks = useLacks();
  const listed = useGet(["v1", "topics"], { prefix: useSettled(prefix), sort: "name", limit: PAGE });
  /** @type {any[]} */
  const topics = listed.answer?.topics ?? [];
  return {
    ...listed,
    readable: topics.map((topic) => topic.name).filter((name) => !lacks("read", "topic", name)),
    hidden: topics.filter((topic) => lacks("read", "topic", topic.name)).length,
    more: Boolean(listed.answer?.next),
  };
}

/** @param {{ tables: ReturnType<typeof useTables>, prefix: string, setPrefix: (prefix: string) => void, put: (name: string) => void }} props */
export function Tables({ tables, prefix, setPrefix, put }) {
  const [open, setOpen] = useState("");
  return html`<aside class="tables" aria-label="Tables">
    <h2>Tables</h2>
    <p class="quiet">Each topic is one. Press a name to put it at the cursor.</p>
    <${Field} label="Names that begin with"><input type="search" value=${prefix} onInput=${(/** @type {any} */ event) => setPrefix(event.target.value)} /><//>
    <${Loaded} of=${tables}>${() => html`
      <ul>
        ${tables.readable.map((name) => html`<li key=${name}>
          <button type="button" class="fold" aria-expanded=${open === name} aria-label=${`Columns of ${name}`} onClick=${() => setOpen(open === name ? "" : name)}>${open === name ? "▾" : "▸"}</button>
          <button type="button" class="link" onClick=${() => put(quoted(name))}>${name}</button>
          ${open === name &&
          html`<ul>${COLUMNS.map(([column, type]) => html`<li key=${column}>
            <button type="button" class="link" onClick=${() => put(quoted(column))}>${quoted(column)}</button> <span class="quiet">${type}</span>
          </li>`)}</ul>`}
        </li>`)}
      </ul>
      ${tables.readable.length === 0 && html`<p class="quiet">${prefix ? `No topic that you may read begins with ${prefix}.` : "There is no topic that you may read."}</p>`}
      ${tables.more && html`<p class="quiet">There are more: say how the name begins.</p>`}
      ${tables.hidden > 0 && html`<p class="quiet">${tables.hidden} more are not listed: they need the right to read them.</p>`}`}
    <//>
  </aside>`;
}
