/**
 * Records of a topic as they come, by a WebSocket with credit: the server sends no more than it was given credit for, so
 * who pauses gives none, and is not flooded. What it was given for before is held back meanwhile.
 */
import { address, get, logins } from "./api.js";

const CREDIT = 200;
const AGAIN_MS = 2_000;

/**
 * @param {string} topic @param {Record<string, unknown>} query where it begins, and what a record has to have
 * @param {{ records: (records: any[]) => void, state: (state: string, why?: string) => void }} heard
 */
export function tail(topic, query, heard) {
  /** @type {WebSocket | null} */
  let socket = null;
  let owed = 0;
  let paused = false;
  /** @type {any[]} */
  let held = [];
  let ended = false;
  let cursor = "";
  let refused = false;
  /** @type {number | undefined} */
  let again;
  /** A login may be what it waits for. */
  const forget = logins.follow(() => refused && reopen());

  /** A page that nobody sees takes nothing. */
  const seen = () => give(0);
  document.addEventListener("visibilitychange", seen);

  function open() {
    const url = address(["v1", "topics", topic, "ws"], cursor ? { ...query, offset: "", timestamp: "", cursor } : query);
    url.protocol = url.protocol.replace("http", "ws");
    const opened = new WebSocket(url, ["silt.v1"]);
    socket = opened;
    opened.onopen = () => {
      heard.state("live");
      owed = 0;
      give(CREDIT);
    };
    opened.onmessage = ({ data }) => {
      const said = JSON.parse(data);
      if (said.type === "records") {
        cursor = said.cursor ?? cursor;
        if (said.records.length === 0) return;
        if (paused) held = [...held, ...said.records];
        else heard.records(said.records);
        give(said.records.length);
      } else if (said.type === "problem") {
        refused = true;
        heard.state("refused", said.detail ?? said.problem?.detail);
        if (said.status === 401) void reopen();
      }
    };
    opened.onclose = ({ code }) => {
      if (ended || opened !== socket || code === 1008) return;
      heard.state("lost");
      again = setTimeout(reopen, AGAIN_MS);
    };
  }

  /** Opens it again, once whoever looks is let in: a WebSocket that is refused does not say why. */
  async function reopen() {
    socket = null;
    try {
      await get(["v1", "access", "whoami"]);
    } catch (problem) {
      refused = true;
      const { status, message } = /** @type {import("./api.js").Problem} */ (problem);
      if (status === 401) heard.state("refused", message);
      else if (!ended) again = setTimeout(reopen, AGAIN_MS);
      return;
    }
    refused = false;
    if (!ended && socket === null) open();
  }

  /** @param {number} records */
  function give(records) {
    owed += records;
    if (paused || document.hidden || owed === 0 || socket?.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify({ type: "credit", records: owed }));
    owed = 0;
  }

  open();
  return {
    /** @param {boolean} on */
    pause(on) {
      paused = on;
      if (!paused && held.length) {
        heard.records(held);
        held = [];
      }
      give(0);
    },
    end() {
      ended = true;
      forget();
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(again);
      socket?.close(1000);
    },
  };
}
