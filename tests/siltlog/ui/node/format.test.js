import assert from "node:assert/strict";
import { test } from "node:test";
import { NOTHING, bytes, count, duration, percent, seconds, short, time, whole } from "../app/format.js";

test("numbers are written as people read them", () => {
  assert.deepEqual([0, 999, 12_301, 81_201_344, 999_600, 0.25, null].map(short), ["0", "999", "12.3 k", "81.2 M", "1 M", "0.25", NOTHING]);
  assert.deepEqual([whole(81_201_344), whole(null), whole(NaN)], ["81,201,344", NOTHING, NOTHING]);
  assert.deepEqual([count(1, "file"), count(2, "file"), count(2, "body", "bodies")], ["1 file", "2 files", "2 bodies"]);
});

test("sizes are in binary units", () => {
  assert.deepEqual([0, 999, 1024, 9.1 * 2 ** 30, 2 ** 50].map(bytes), ["0 B", "999 B", "1 KiB", "9.1 GiB", "1 PiB"]);
});

test("shares and durations have the unit that fits", () => {
  assert.deepEqual([0, 0.0001, 0.004, 0.58].map(percent), ["0 %", "< 0.1 %", "0.4 %", "58 %"]);
  assert.deepEqual([7.4, 1_000, 42_000, 300_000, 3 * 3_600_000, 12 * 86_400_000].map(duration), ["7.4 ms", "1 s", "42 s", "5 min", "3 h", "12 d"]);
  assert.deepEqual([seconds(42), seconds(null)], ["42 s", NOTHING]);
});

test("a moment that is none is written as it came", () => {
  assert.equal(time("2026-11-21T07:36:00.123456Z", "utc"), "2026-11-21 07:36:00.123Z");
  assert.deepEqual([time("soon", "utc"), time(null, "utc")], ["soon", NOTHING]);
});
