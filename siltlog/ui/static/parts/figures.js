/** Figures that several pages show. */
import { html } from "../app/dom.js";
import { NOTHING, percent, time } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { useStore } from "../app/store.js";

/** A moment, to the second. @param {{ at: string | null | undefined }} props */
export function At({ at }) {
  return html`<span class="moment">${time(at, useStore(zone)).slice(0, 19)}</span>`;
}

/** The share of something that is used; `name` says of what. @param {{ share: number | null | undefined, name: string }} props */
export function Used({ share, name }) {
  if (share === null || share === undefined) return NOTHING;
  return html`<span class="used"><meter min="0" max="1" low="0.7" high="0.9" optimum="0" value=${share} aria-label=${`${name}: ${percent(share)} used`}></meter> ${percent(share)}</span>`;
}
