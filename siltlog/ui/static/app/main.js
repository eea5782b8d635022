/** The page: its frame, and which page of it is shown. */
import { begin } from "./session.js";
import { html, render } from "./dom.js";
import { Frame } from "../parts/frame.js";

const place = document.getElementById("page");
if (place !== null) {
  place.replaceChildren();
  render(html`<${Frame} />`, place);
}
void begin();
