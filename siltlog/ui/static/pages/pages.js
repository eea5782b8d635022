/** Which page is at which place. */
import { html } from "../app/dom.js";
import { href } from "../app/route.js";
import { Heading } from "../parts/form.js";
import { Overview } from "./overview.js";

/** @type {Record<string, (props: any) => any>} */
const PAGES = {};

/** Gives the component that shows a place. @param {string[]} path */
export function pageOf(path) {
  if (path.length === 0) return Overview;
  return PAGES[path[0]] ?? Nowhere;
}

function Nowhere() {
  return html`<${Heading} title="There is no such page" />
    <p><a href=${href([])}>To the overview</a></p>`;
}
