/** A sparkline: the last values, drawn small. What it shows stands beside it as a number, so it is hidden from readers. */
import { html } from "../app/dom.js";

const WIDTH = 90;
const HEIGHT = 20;

/** @param {{ values: (number|null)[], max?: number }} props */
export function Spark({ values, max }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} aria-hidden="true"></svg>`;
  const top = max ?? Math.max(...known, 1e-9);
  const step = WIDTH / (values.length - 1);
  let line = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    line += `${pen}${(at * step).toFixed(1)} ${(HEIGHT - 1 - (Math.min(value, top) / top) * (HEIGHT - 2)).toFixed(1)}`;
    pen = "L";
  });
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true">
    <path d=${line} />
  </svg>`;
}
