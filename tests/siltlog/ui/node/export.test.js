import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { baseURI: "https://log.example/ui/" };
globalThis.location = { hash: "" };
globalThis.addEventListener = () => {};
const { content, csv } = await import("../parts/export.js");
const { polled } = await import("../app/polled.js");

test("a text that a spreadsheet would calculate gets an apostrophe, a number does not", () => {
  assert.equal(csv(["a", "b", "c", "d"], [[-9007199254740993n, -1, "-1", null]]), "a,b,c,d\r\n-9007199254740993,-1,'-1,\r\n");
});

test("what is kept of a key says whether it is text, base64 or null", () => {
  assert.deepEqual([{ key: "AA==" }, { key_base64: "AA==" }, { key: null }, { key: "" }].map((record) => content(record, "key")), [["AA==", "text"], ["AA==", "base64"], [null, null], ["", "text"]]);
});

test("of a list that was cut nobody says how many there are", async () => {
  const get = (next) => async () => ({ topics: [], groups: [], next });
  assert.deepEqual([(await polled("topics", get("b"))).of, (await polled("topics", get(null))).of], [null, 0]);
  assert.equal((await polled("groups", get("b"))).of, null);
});
