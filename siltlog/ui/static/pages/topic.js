/** One topic: its tabs, and deleting it. */
import { call } from "../app/api.js";
import { html, useState } from "../app/dom.js";
import { bytes, count, short } from "../app/format.js";
import { useLive } from "../app/live.js";
import { go, href } from "../app/route.js";
import { useLacks } from "../app/session.js";
import { useAct, useGet } from "../app/use.js";
import { Confirm } from "../parts/dialog.js";
import { Failed, Loaded } from "../parts/failed.js";
import { Action, Heading, Tabs } from "../parts/form.js";
import { AsCode, asCurl, withAdmin } from "../parts/snippet.js";
import { Files } from "../topic/files.js";
import { TopicGroups } from "../topic/groups.js";
import { Partitions } from "../topic/partitions.js";
import { Settings } from "../topic/settings.js";
import { Publish } from "./publish.js";
import { Records } from "./records.js";

const EACH_MS = 5_000;
/** @type {[string, string][]} */
const TABS = [
  ["records", "Records"],
  ["partitions", "Partitions"],
  ["files", "Files"],
  ["groups", "Groups"],
  ["settings", "Settings"],
  ["publish", "Publish"],
];

/** @param {{ path: string[], query: URLSearchParams }} props */
export function Topic({ path, query }) {
  const name = path[1];
  const tab = path[2] ?? "records";
  const described = useGet(["v1", "topics", name], {}, EACH_MS);
  const live = useLive("topics")?.topics.find((/** @type {any} */ topic) => topic.name === name);
  return html`
    <${Heading} title=${html`<a class="crumb" href=${href(["topics"])}>Topics</a> › ${name}`}>
      ${described.answer && html`<${Deleting} name=${name} />`}
    <//>
    <${Loaded} of=${described}>${(/** @type {any} */ topic) => html`
      <p class="quiet">${[
        `${short(live?.records ?? topic.records)} records`,
        bytes(live?.bytes ?? topic.bytes),
        count(topic.files, "file"),
        count(topic.partitions, "partition"),
        live && `${short(live.records_in_per_s)} records/s in`,
        topic.owner && `at ${topic.owner}`,
      ].filter(Boolean).join(" · ")} · <a href=${href(["metrics"], { topic: name })}>metrics</a> · <a href=${href(["dead_letters", name.replace(/\.dlq$/, "")])}>dead letters</a></p>
      <${Tabs} label="What of the topic" tabs=${TABS} chosen=${tab} to=${(/** @type {string} */ each) => href(["topics", name, each])} />
      ${tab === "records" && html`<${Records} key=${name} topic=${topic} query=${query} />`}
      ${tab === "partitions" && html`<${Partitions} topic=${topic} again=${described.again} />`}
      ${tab === "files" && html`<${Files} name=${name} query=${query} />`}
      ${tab === "groups" && html`<${TopicGroups} name=${name} live=${live} />`}
      ${tab === "settings" && html`<${Settings} topic=${topic} again=${described.again} />`}
      ${tab === "publish" && html`<${Publish} key=${query.toString()} topic=${topic} query=${query} />`}`}
    <//>
  `;
}

/** @param {{ name: string }} props */
function Deleting({ name }) {
  const lacks = useLacks();
  const [asking, setAsking] = useState(false);
  const remove = useAct(async () => {
    await call("DELETE", ["v1", "topics", name]);
    go(["topics"]);
  });
  return html`<${Action} kind="danger" not=${lacks("delete", "topic", name)} act=${() => setAsking(true)}>Delete …<//>
    ${asking &&
    html`<${Confirm} title="Delete the topic" word=${name} doing="Delete it" busy=${remove.busy} act=${remove.run} close=${() => setAsking(false)}>
      <p>All records of <strong>${name}</strong> and its table are deleted. Nothing brings them back but a backup.</p>
      <p><${AsCode} shown=${{ curl: asCurl({ method: "DELETE", path: ["v1", "topics", name] }), python: withAdmin(`delete_topic(${JSON.stringify(name)})`) }} /></p>
      <${Failed} problem=${remove.problem} />
    <//>`}`;
}
