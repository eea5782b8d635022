import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.location = { hash: "" };
globalThis.addEventListener = () => {};
globalThis.history = { replaceState: (_state, _title, hash) => (globalThis.location.hash = hash) };
const { href, parsed, route, setQuery } = await import("../app/route.js");
const { ranking } = await import("../app/ranking.js");

test("a place is read as it was written, whatever it is called", () => {
  for (const path of [[], ["topics", "orders"], ["groups", "a/b c?d#e&f"], ["topics", "ä\u202e%"]]) {
    assert.deepEqual(parsed(href(path)).path, path);
  }
  const { query } = parsed(href(["topics"], { prefix: "a&b=c", sort: "", after: null, limit: 0 }));
  assert.deepEqual([...query], [["prefix", "a&b=c"], ["limit", "0"]]);
});

test("an address that is broken leads somewhere", () => {
  assert.deepEqual(parsed("#/topics/%E0%A4%A").path, ["topics", "%E0%A4%A"]);
  assert.deepEqual(parsed("").path, []);
});

test("a list is ranked the usual way first, and then the other way round", () => {
  location.hash = "#/topics";
  route.set(parsed(location.hash));
  ranking(route.get().query, "rate").rank("bytes");
  assert.equal(location.hash, "#/topics?sort=bytes&order=desc");
  ranking(route.get().query, "rate").rank("bytes");
  assert.equal(location.hash, "#/topics?sort=bytes&order=asc");
  ranking(route.get().query, "rate").rank("name");
  assert.equal(location.hash, "#/topics?sort=name&order=asc");
});

test("the next page is forgotten when it is ranked anew", () => {
  setQuery({ prefix: "o", after: "orders" });
  const now = ranking(route.get().query, "lag");
  assert.deepEqual([now.prefix, now.after], ["o", "orders"]);
  now.rank("name");
  assert.equal(ranking(route.get().query, "lag").after, "");
});
