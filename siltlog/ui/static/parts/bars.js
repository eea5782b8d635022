/** Amounts of names, a bar each; the figure stands beside its bar. */
import { html } from "../app/dom.js";
import { whole } from "../app/format.js";

const SHOWN_MAX = 50;

/** @param {{ title: string, bars: { name: string, value: number|null }[], write: (value: number|null) => string }} props */
export function Bars({ title, bars, write }) {
  const shown = bars.slice(0, SHOWN_MAX);
  const most = Math.max(...shown.map((bar) => Math.abs(bar.value ?? 0)), 1e-9);
  return html`<figure class="chart bars">
    <figcaption><span>${title}</span></figcaption>
    <dl>
      ${shown.map((bar, at) => html`<div key=${at}>
        <dt class="cut">${bar.name}</dt>
        <dd>
          <svg width="100%" height="14" aria-hidden="true"><rect class=${(bar.value ?? 0) < 0 ? "below" : ""} width=${`${((Math.abs(bar.value ?? 0) / most) * 100).toFixed(2)}%`} height="14" rx="2" /></svg>
          <b>${write(bar.value)}</b>
        </dd>
      </div>`)}
    </dl>
    ${bars.length > SHOWN_MAX && html`<p class="quiet">The first ${SHOWN_MAX} of ${whole(bars.length)} rows.</p>`}
  </figure>`;
}
