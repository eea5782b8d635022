import assert from "node:assert/strict";
import { test } from "node:test";
import { rangeOf } from "../app/range.js";
import { direction, gone } from "../app/trend.js";

const MINUTE = 60_000;
const times = Array.from({ length: 60 }, (_, at) => new Date(at * MINUTE).toISOString());

test("a disk that fills evenly is full when its line says so", () => {
  const free = times.map((_, at) => (at % 7 === 3 ? null : 1_000_000 - at * 1_000));
  assert.equal(Math.round(gone(times, free) / MINUTE), 942);
});

test("nothing is foretold of what rises, jumps, is far away or hardly known", () => {
  assert.equal(gone(times, times.map((_, at) => at)), null);
  assert.equal(gone(times, times.map((_, at) => (at % 2) * 1_000_000)), null);
  assert.equal(gone(times, times.map((_, at) => 1e12 - at)), null);
  assert.equal(gone(times, times.map((_, at) => (at < 5 ? 100 - at : null))), null);
  assert.equal(gone(times, times.map(() => 5)), null);
});

test("a lag rises, falls or stays", () => {
  assert.equal(direction(times.map((_, at) => at)), "rises");
  assert.equal(direction(times.map((_, at) => 60 - at)), "falls");
  assert.equal(direction(times.map((_, at) => 100 + (at % 2))), "stays");
  assert.equal(direction(times.map(() => 0)), "stays");
  assert.equal(direction([1, 2, null]), "");
});

test("an address asks for a range, and for the usual one where it asks for none that there is", () => {
  assert.equal(rangeOf(new URLSearchParams("range=30d")).ms, 30 * 86_400_000);
  assert.equal(rangeOf(new URLSearchParams("range=ever")).name, "1h");
});
