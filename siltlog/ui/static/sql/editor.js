/** Where a query is written: completes names, quotes those that need it, runs at Ctrl or ⌘ and Enter. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../app/dom.js";
import { begun, completions } from "./names.js";

/**
 * @param {{
 *   text: string,
 *   set: (text: string) => void,
 *   run: () => void,
 *   tables: string[],
 *   place: { at: number } | null,
 *   hand: { put?: (name: string) => void },
 * }} props `place` is where the server found something wrong; `hand` gets what puts a name at the cursor
 */
export function Editor({ text, set, run, tables, place, hand }) {
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const cursor = useRef(/** @type {number | null} */ (null));
  const [offered, setOffered] = useState(/** @type {string[]} */ ([]));
  useLayoutEffect(() => {
    if (cursor.current === null || area.current === null) return;
    area.current.focus();
    area.current.setSelectionRange(cursor.current, cursor.current);
    cursor.current = null;
  }, [text]);
  useEffect(() => {
    if (place === null || area.current === null) return;
    area.current.focus();
    area.current.setSelectionRange(place.at, Math.min(place.at + 1, text.length));
  }, [place]);

  /** Puts a text in the place of what stands from `from` to the end of the selection. @param {string} written @param {number} from */
  function put(written, from) {
    const element = area.current;
    if (element === null) return;
    cursor.current = from + written.length;
    setOffered([]);
    set(element.value.slice(0, from) + written + element.value.slice(element.selectionEnd));
  }
  hand.put = (name) => {
    const element = area.current;
    if (element === null) return;
    const before = element.value.slice(0, element.selectionStart);
    put(`${before === "" || /[\s(,.]$/.test(before) ? "" : " "}${name}`, element.selectionStart);
  };
  /** @param {string} written */
  const complete = (written) => area.current !== null && put(written, begun(area.current.value, area.current.selectionStart));

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
    else if (event.key === "Tab" && !event.shiftKey && offered.length > 0) complete(offered[0]);
    else if (event.key === "Escape" && offered.length > 0) setOffered([]);
    else return;
    event.preventDefault();
  }
  return html`<div class="editor">
    <label class="field">Query
      <textarea ref=${area} data-search spellcheck=${false} autocomplete="off" autocapitalize="off" rows="6" aria-describedby="editor-hint"
        placeholder="select * from …" value=${text} onKeyDown=${pressed} onBlur=${(/** @type {FocusEvent} */ event) => leaving(event) && setOffered([])}
        onInput=${(/** @type {any} */ event) => {
          set(event.target.value);
          setOffered(completions(event.target.value, event.target.selectionStart, tables));
        }}></textarea>
    </label>
    <p class="offered" id="editor-hint">
      ${offered.length > 0
        ? html`${offered.map((each) => html`<button type="button" key=${each} onClick=${() => complete(each)}>${each}</button>`)}
          <span class="quiet"><kbd>Tab</kbd> takes the first, <kbd>Esc</kbd> none</span>`
        : html`<span class="quiet">One SELECT of DuckDB's SQL. Keys and values are bytes: <code>string(value)</code> is their text,${" "}
            <code>get_json_object(string(value), '$.item')</code> a member. <code>"offset"</code> stands in quotes.</span>`}
    </p>
  </div>`;
}

/** Tells whether the focus goes elsewhere than to what is offered. @param {FocusEvent} event */
function leaving(event) {
  return !(event.relatedTarget instanceof HTMLElement && event.relatedTarget.closest(".offered"));
}
