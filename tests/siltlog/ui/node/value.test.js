import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { baseURI: "https://log.example/a/b/ui/" };
globalThis.location = { hash: "" };
globalThis.addEventListener = () => {};
const { bytesOf, hex, keyOf, preview } = await import("../parts/value.js");
const { asCurl, literal, withAdmin } = await import("../parts/snippet.js");

test("a value is its bytes, also where it is no text", () => {
  assert.deepEqual([...bytesOf({ value: "ä" })], [0xc3, 0xa4]);
  assert.deepEqual([...bytesOf({ value_base64: "AP8=" })], [0, 255]);
  assert.equal(bytesOf({ value: null }), null);
});

test("bytes are written as offsets, digits and letters", () => {
  assert.equal(hex(Uint8Array.of(0x41, 0, 0xff)), `00000000  ${"41 00 ff".padEnd(48)} A..`);
  assert.equal(hex(new Uint8Array(8 * 2 ** 20)).split("\n").length, 4096, "of a value that is long its beginning");
});

test("a tombstone and a key that is no text are told", () => {
  assert.equal(preview({ value: null }), "∅ tombstone");
  assert.equal(preview({ value: "a".repeat(1_000) }, 5), "aaaaa");
  assert.deepEqual([keyOf({ key: null }), keyOf({ key_base64: "AA==" }), keyOf({ key: "" })], ["–", "base64 AA==", ""]);
});

test("what is copied into a shell stays one word", () => {
  assert.match(asCurl({ method: "POST", path: ["v1", "a'b"], body: { it: "isn't" } }), /-d '\{"it":"isn'\\''t"\}'/);
  assert.match(asCurl({ method: "GET", path: ["v1"] }), /\$SILT_TOKEN/);
});

test("what is copied is called below the path that the page is below", () => {
  assert.match(asCurl({ method: "GET", path: ["v1", "topics"] }), /'https:\/\/log\.example\/a\/b\/v1\/topics'/);
  assert.match(withAdmin("topics()"), /Admin\("https:\/\/log\.example\/a\/b"\)/);
});

test("values are literals of Python", () => {
  assert.equal(literal({ a: [1, null, true, "x\"y"] }), '{"a": [1, None, True, "x\\"y"]}');
});
