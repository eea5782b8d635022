/** The frame: menu, who looks, whether it is live, the login over the page, help for the keys. */
import { askForLogin, logOut, who } from "../app/session.js";
import { html, useEffect, useRef, useState } from "../app/dom.js";
import { PLACES, listen } from "../app/keys.js";
import { state as liveState, useLive } from "../app/live.js";
import { theme, zone } from "../app/prefs.js";
import { href, route } from "../app/route.js";
import { useStore } from "../app/store.js";
import { useAct } from "../app/use.js";
import { Page, fetchWhenIdle } from "../pages/pages.js";
import { Dialog } from "./dialog.js";
import { Failed } from "./failed.js";
import { Login } from "./login.js";

/** @type {[string, string[]][]} */
const MENU = [
  ["Overview", []],
  ["Topics", ["topics"]],
  ["Groups", ["groups"]],
  ["Dead letters", ["dead_letters"]],
  ["Jobs", ["jobs"]],
  ["SQL", ["sql"]],
];
/** What is looked for less often. @type {[string, string[]][]} */
const MORE = [
  ["Cluster", ["cluster"]],
  ["Metrics", ["metrics"]],
  ["Access", ["access"]],
  ["Audit", ["audit"]],
  ["Settings", ["settings"]],
];
const LIVE = { starting: "connecting", live: "live", polling: "each 10 s", lost: "not reached" };

export function Frame() {
  const { path, query } = useStore(route);
  const [helping, setHelping] = useState(false);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const place = path.slice(0, 2).join("/");
  const first = useRef(true);
  useEffect(() => listen(() => setHelping(true)), []);
  function shown() {
    const heading = main.current?.querySelector("h1");
    document.title = [heading?.textContent, "Siltlog"].filter(Boolean).join(" · ");
    // Who works by keyboard or hears the page goes on where the new page begins.
    if (first.current) fetchWhenIdle();
    else /** @type {HTMLElement | null | undefined} */ (heading)?.focus();
    first.current = false;
  }
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => skip(event, main.current)}>To the content</a>
    <header class="top">
      <a class="brand" href=${href([])} aria-label="Siltlog, overview">siltlog</a>
      <nav aria-label="Pages">
        <ul>
          ${MENU.map(([name, to]) => html`<li key=${name}><${Place} name=${name} to=${to} path=${path} /></li>`)}
          <li><${More} path=${path} /></li>
        </ul>
      </nav>
      <div class="aside">
        <${Live} />
        <${Who} help=${() => setHelping(true)} />
      </div>
    </header>
    <main id="main" ref=${main} tabindex="-1"><${Page} key=${place} path=${path} query=${query} shown=${shown} /></main>
    ${helping && html`<${Help} close=${() => setHelping(false)} />`}
    <${Login} />
  `;
}

/** @param {Event} event @param {HTMLElement | null} main */
function skip(event, main) {
  event.preventDefault();
  main?.focus();
}

/** @param {{ name: string, to: string[], path: string[] }} props */
function Place({ name, to, path }) {
  const here = (path[0] ?? "") === (to[0] ?? "");
  return html`<a href=${href(to)} aria-current=${here ? "page" : undefined}>${name}</a>`;
}

/** @param {{ path: string[] }} props */
function More({ path }) {
  const here = MORE.some(([, to]) => to[0] === path[0]);
  const menu = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  return html`<details class="menu" ref=${menu} ...${closing}>
    <summary class=${here ? "here" : ""}>More</summary>
    <ul class="panel" onClick=${() => menu.current?.removeAttribute("open")}>
      ${MORE.map(([name, to]) => html`<li key=${name}><${Place} name=${name} to=${to} path=${path} /></li>`)}
    </ul>
  </details>`;
}

/** A menu closes at Escape and when the focus leaves it. */
const closing = {
  onKeyDown(/** @type {KeyboardEvent} */ event) {
    const menu = /** @type {HTMLDetailsElement} */ (event.currentTarget);
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary")?.focus();
  },
  onFocusOut(/** @type {FocusEvent} */ event) {
    const menu = /** @type {HTMLDetailsElement} */ (event.currentTarget);
    if (event.relatedTarget instanceof Node && !menu.contains(event.relatedTarget)) menu.open = false;
  },
};

function Live() {
  useLive("overview");
  const how = /** @type {keyof typeof LIVE} */ (useStore(liveState));
  return html`<span class="reached ${how}" role="status"><i aria-hidden="true"></i>${LIVE[how]}</span>`;
}

/** @param {{ help: () => void }} props */
function Who({ help }) {
  const caller = useStore(who);
  const chosenTheme = useStore(theme);
  const chosenZone = useStore(zone);
  const leaving = useAct(logOut);
  const name = caller === null ? "not logged in" : caller.auth === "off" ? "everybody" : caller.principal;
  return html`<details class="menu right" ...${closing}>
    <summary>${name}</summary>
    <div class="panel">
      ${caller !== null && html`<p class="quiet">${described(caller)}</p>`}
      ${caller === null && html`<p><button type="button" onClick=${askForLogin}>Log in …</button></p>`}
      ${caller?.by === "session" && html`<p><button type="button" disabled=${leaving.busy} onClick=${() => leaving.run()}>Log out</button></p>`}
      <${Failed} problem=${leaving.problem} />
      <${Choice} label="Theme" value=${chosenTheme} set=${theme.set} of=${["system", "light", "dark"]} />
      <${Choice} label="Times" value=${chosenZone} set=${zone.set} of=${["local", "utc"]} />
      <p><button type="button" class="link" onClick=${help}>Keys <kbd>?</kbd></button></p>
      <p><a href="../docs">The API</a></p>
    </div>
  </details>`;
}

/** @param {any} caller */
function described(caller) {
  const shows = caller.page === "read" ? " The page only shows." : "";
  if (caller.auth === "off") return `This server asks nobody who they are.${shows}`;
  const roles = caller.roles.map((/** @type {any} */ role) => (role.prefix ? `${role.role} of ${role.prefix}…` : role.role));
  return `${roles.length ? roles.join(", ") : "No role; what entries allow."}${shows}`;
}

/** @param {{ label: string, value: string, set: (value: string) => void, of: string[] }} props */
function Choice({ label, value, set, of }) {
  return html`<fieldset class="choice">
    <legend>${label}</legend>
    ${of.map(
      (each) => html`<label key=${each}>
        <input type="radio" name=${label} checked=${each === value} onChange=${() => set(each)} />${each}
      </label>`,
    )}
  </fieldset>`;
}

/** @param {{ close: () => void }} props */
function Help({ close }) {
  const keys = [
    ["/", "search on this page"],
    ["j k", "next, previous row"],
    ["Enter", "open a row"],
    ["Space", "pause live records"],
    ["?", "this help"],
    ...Object.entries(PLACES).map(([key, [name]]) => [`g ${key}`, name]),
  ];
  return html`<${Dialog} title="Keys" close=${close}>
    <dl class="keys">
      ${keys.map(
        ([key, text]) => html`<div key=${key}>
          <dt>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dt>
          <dd>${text}</dd>
        </div>`,
      )}
    </dl>
  <//>`;
}
