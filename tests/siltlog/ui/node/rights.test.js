import assert from "node:assert/strict";
import { test } from "node:test";
import { allowed, lacking } from "../app/rights.js";

const entry = (effect, pattern, name, operations, kind = "topic") => ({ effect, kind, pattern, name, operations });
const caller = (roles, rights = []) => ({ auth: "on", roles, rights });

test("nobody may do anything before it is known who asks, and everybody where nobody is asked", () => {
  assert.equal(allowed(null, "read", "topic", "orders"), false);
  assert.equal(allowed({ auth: "off" }, "delete", "topic", "orders"), true);
});

test("a role holds for the names that begin as it says", () => {
  const operator = caller([{ role: "operator", prefix: "sales." }]);
  assert.equal(allowed(operator, "delete", "topic", "sales.orders"), true);
  assert.equal(allowed(operator, "read", "topic", "sales.orders"), false);
  assert.equal(allowed(operator, "delete", "topic", "orders"), false);
  assert.equal(allowed(operator, "alter", "cluster"), false);
  assert.equal(allowed(caller([{ role: "operator", prefix: "" }]), "alter", "cluster"), true);
});

test("only a whole administrator has the topics that begin with an underscore", () => {
  assert.equal(allowed(caller([{ role: "admin", prefix: "" }]), "read", "topic", "_jobs"), true);
  assert.equal(allowed(caller([{ role: "consumer", prefix: "" }]), "read", "topic", "_jobs"), false);
});

test("what is denied stays so, and what implies describing shows it", () => {
  const rights = [entry("deny", "literal", "orders", ["read"]), entry("allow", "prefix", "", ["read"])];
  assert.equal(allowed(caller([{ role: "admin", prefix: "" }], rights), "read", "topic", "orders"), false);
  assert.equal(allowed(caller([], rights), "describe", "topic", "flights"), true);
  assert.equal(allowed(caller([], rights), "write", "topic", "flights"), false);
});

test("what is missing is said", () => {
  assert.equal(lacking(caller([]), "alter", "cluster"), "This needs the right to alter the cluster.");
  assert.equal(lacking(caller([]), "read", "topic", "orders"), "This needs the right to read topic orders.");
  assert.equal(lacking(caller([{ role: "admin", prefix: "" }]), "read", "topic", "orders"), "");
});
