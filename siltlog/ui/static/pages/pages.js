/** Which page is at which place. */
import { html } from "../app/dom.js";
import { href } from "../app/route.js";
import { Heading } from "../parts/form.js";
import { Group } from "./group.js";
import { Groups } from "./groups.js";
import { Overview } from "./overview.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";

/** Of each place the page of the whole, and that of one by its name. @type {Record<string, [(props: any) => any, (props: any) => any]>} */
const PAGES = { topics: [Topics, Topic], groups: [Groups, Group] };

/** Gives the component that shows a place. @param {string[]} path */
export function pageOf(path) {
  if (path.length === 0) return Overview;
  const [whole, one] = PAGES[path[0]] ?? [Nowhere, Nowhere];
  return path.length > 1 ? one : whole;
}

function Nowhere() {
  return html`<${Heading} title="There is no such page" />
    <p><a href=${href([])}>To the overview</a></p>`;
}
