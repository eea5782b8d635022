/** A window over the page; the browser keeps the focus in it and gives it back. */
import { html, useLayoutEffect, useRef } from "../app/dom.js";

/** @param {{ title: string, close: () => void, children?: any, wide?: boolean }} props */
export function Dialog({ title, close, children, wide = false }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // What is removed while it is open takes the focus with it: what is closed gives it back.
    return () => shown?.close();
  }, []);
  /** @param {Event} event */
  function cancel(event) {
    event.preventDefault();
    close();
  }
  return html`<dialog ref=${dialog} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${cancel}>
    <div class="bar">
      <h2>${title}</h2>
      <button type="button" class="close" aria-label="Close" onClick=${close}>×</button>
    </div>
    ${children}
  </dialog>`;
}

/**
 * Asks for a word before something that cannot be taken back.
 * @param {{ title: string, word: string, doing: string, act: () => void, close: () => void, busy?: boolean, children?: any }} props
 */
export function Confirm({ title, word, doing, act, close, busy = false, children }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (input.current?.value === word) act();
    else input.current?.setCustomValidity(`Type ${word} to go on`);
    input.current?.reportValidity();
  }
  return html`<${Dialog} title=${title} close=${close}>
    <form onSubmit=${submit}>
      ${children}
      <label class="field"><span>Type <strong>${word}</strong> to go on</span>
        <input ref=${input} autocomplete="off" spellcheck=${false} onInput=${() => input.current?.setCustomValidity("")} />
      </label>
      <p class="actions">
        <button type="submit" class="danger" disabled=${busy}>${doing}</button>
        <button type="button" onClick=${close}>Cancel</button>
      </p>
    </form>
  <//>`;
}
