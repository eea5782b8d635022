/** Charts over time, drawn by uPlot; the same figures are in a table below. */
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { time } from "../app/format.js";
import { zone } from "../app/prefs.js";
import { useStore } from "../app/store.js";
import { Table } from "./table.js";

const HEIGHT = 180;
const MINUTE_SECONDS = 60;
const DAY_SECONDS = 86_400;
/** Colours that differ for colour-blind eyes too (Okabe and Ito), each with a dash of its own. */
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3]];
export const SERIES_MAX = COLOURS.length;

/**
 * @param {{
 *   title: string,
 *   times: (string|number)[],
 *   series: { name: string, values: (number|null)[] }[],
 *   write: (value: number|null) => string,
 * }} props `write` gives a value as people read it; at most SERIES_MAX series are drawn
 */
export function Chart({ title, times, series, write }) {
  const [tabled, setTabled] = useState(false);
  const drawn = series.slice(0, SERIES_MAX);
  return html`<figure class="chart">
    <figcaption>
      <span>${title}</span>
      <button type="button" class="link" aria-expanded=${tabled} onClick=${() => setTabled(!tabled)}>
        ${tabled ? "as a chart" : "as a table"}
      </button>
    </figcaption>
    ${!drawn.some((each) => each.values.some((value) => value !== null))
      ? html`<p class="quiet">Nothing was measured in this time.</p>`
      : tabled
        ? html`<${Figures} title=${title} times=${times} series=${drawn} write=${write} />`
        : html`<${Drawing} title=${title} times=${times} series=${drawn} write=${write} />`}
  </figure>`;
}

/** @param {any} props */
function Figures({ title, times, series, write }) {
  const chosenZone = useStore(zone);
  const rows = times.map((/** @type {any} */ at, /** @type {number} */ index) => ({ at, index })).reverse();
  const columns = [
    { name: "time", title: "Time", cell: (/** @type {any} */ row) => time(row.at, chosenZone) },
    ...series.map((/** @type {any} */ each, /** @type {number} */ index) => ({
      name: String(index),
      title: each.name,
      number: true,
      cell: (/** @type {any} */ row) => write(each.values[row.index] ?? null),
    })),
  ];
  return html`<${Table} caption=${title} columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => String(row.at)} empty="" />`;
}

/** @param {any} props */
function Drawing({ title, times, series, write }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const chosenZone = useStore(zone);
  const [at, setAt] = useState(/** @type {number|null} */ (null));
  const names = series.map((/** @type {any} */ each) => each.name).join("\n");
  const data = [
    times.map((/** @type {any} */ moment) => new Date(moment).getTime() / 1000),
    ...series.map((/** @type {any} */ each) => each.values),
  ];
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    /** @type {ResizeObserver | undefined} */
    let resized;
    // A task for each chart: one for all would hold up a click.
    const drawing = setTimeout(() => {
      const made = new /** @type {any} */ (window).uPlot(options(element, series, write, chosenZone, setAt), newest.current, element);
      plot.current = made;
      resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
      resized.observe(element);
    });
    return () => {
      clearTimeout(drawing);
      resized?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, chosenZone]);
  useEffect(() => plot.current?.setData(data), [times, series]);
  const index = at ?? times.length - 1;
  return html`
    <div class="plot" ref=${place} role="img" aria-label=${`${title}, as a chart; its figures are in the table`}></div>
    <ul class="legend">
      <li class="quiet">${time(times[index], chosenZone).slice(0, 19)}</li>
      ${series.map(
        (/** @type {any} */ each, /** @type {number} */ n) => html`<li key=${each.name}>
          <i class="swatch s${n + 1}" aria-hidden="true"></i>${each.name} <b>${write(each.values[index] ?? null)}</b>
        </li>`,
      )}
    </ul>
  `;
}

/** Gives a colour as a canvas takes it: a variable may say two, for light and dark. @param {HTMLElement} element @param {string} name */
function colour(element, name) {
  element.style.color = `var(${name})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return found;
}

/** Writes ticks of the time axis as the rest of the page writes times, as shortly as they differ. @param {number[]} ticks @param {string} chosenZone */
function moments(ticks, chosenZone) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 0;
  const [from, to] = step >= DAY_SECONDS ? [5, 10] : step >= MINUTE_SECONDS ? [11, 16] : [11, 19];
  return ticks.map((tick, at) => {
    const written = time(tick * 1000, chosenZone);
    // Where a day begins it is named.
    const begins = at > 0 && step < DAY_SECONDS && written.slice(5, 10) !== time(ticks[at - 1] * 1000, chosenZone).slice(5, 10);
    return begins ? written.slice(5, 10) : written.slice(from, to);
  });
}

/** @param {HTMLElement} element @param {any[]} series @param {(value: number|null) => string} write @param {string} chosenZone @param {(at: number|null) => void} setAt */
function options(element, series, write, chosenZone, setAt) {
  const grid = { stroke: () => colour(element, "--line"), width: 1 };
  const axis = {
    stroke: () => colour(element, "--quiet"),
    grid,
    ticks: grid,
    font: `12px ${getComputedStyle(element).fontFamily}`,
  };
  return {
    width: Math.max(element.clientWidth, 200),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    tzDate: (/** @type {number} */ seconds) => {
      const date = new Date(seconds * 1000);
      return chosenZone === "utc" ? new Date(date.getTime() + date.getTimezoneOffset() * 60_000) : date;
    },
    scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
    axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => moments(ticks, chosenZone) }, { ...axis, size: 70, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(write) }],
    series: [
      {},
      ...series.map((_, index) => ({
        stroke: () => colour(element, COLOURS[index]),
        dash: DASHES[index],
        width: 1.5,
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(/** @type {any} */ plot) => setAt(plot.cursor.idx ?? null)] },
  };
}
