/**
 * What a caller may do, told from what `whoami` says of its roles and entries. The server decides; this only tells which
 * actions to offer, and why one is not.
 */

/** @typedef {{ effect: string, kind: string, pattern: string, name: string, operations: string[] }} Right */

const IMPLY_DESCRIBE = new Set(["read", "write", "alter", "delete"]);

/** What each role gives, by kind. */
const ROLES = {
  admin: {
    topic: ["read", "write", "create", "alter", "delete", "describe"],
    group: ["read", "alter", "delete", "describe"],
    cluster: ["describe", "write", "alter", "admin"],
  },
  operator: {
    topic: ["describe", "create", "alter", "delete"],
    group: ["describe", "alter", "delete"],
    cluster: ["describe", "write", "alter"],
  },
  producer: { topic: ["write"], group: [], cluster: [] },
  consumer: { topic: ["read"], group: ["read"], cluster: [] },
  viewer: { topic: ["describe"], group: ["describe"], cluster: ["describe"] },
};

/** What there is to be done on a page that only shows; to administer is also to look at what there is of access. */
const SHOWS = ["read", "describe", "admin"];
const ONLY_SHOWS = "The page of this server only shows (SILT_UI=read): use the command line.";
/** The page of this server only shows (`SILT_UI=read`), whatever its user may. */
let onlyShows = false;

/** @param {boolean} on */
export function setOnlyShows(on) {
  onlyShows = on;
}

/** @param {string[]} operations @param {string} operation */
function covers(operations, operation) {
  return (
    operations.includes(operation) ||
    (operation === "describe" && operations.some((each) => IMPLY_DESCRIBE.has(each)))
  );
}

/** @param {Right} right @param {string} kind @param {string} name */
function fits(right, kind, name) {
  if (right.kind !== kind) return false;
  if (kind === "cluster") return true;
  if (right.pattern === "literal") return right.name === name;
  return name.startsWith(right.name) && !name.startsWith("_");
}

/**
 * Tells whether `who` may do `operation`: a deny that fits wins, then an allow, then a role.
 * @param {any} who what `whoami` answered; null before it did
 * @param {string} operation @param {"topic"|"group"|"cluster"} kind @param {string} [name]
 */
export function allowed(who, operation, kind, name = "") {
  if (who === null) return false;
  if (onlyShows && !SHOWS.includes(operation)) return false;
  if (who.auth === "off") return true;
  const entries = /** @type {Right[]} */ (who.rights ?? []).filter((right) => fits(right, kind, name));
  if (entries.some((right) => right.effect === "deny" && right.operations.includes(operation))) return false;
  if (entries.some((right) => right.effect === "allow" && covers(right.operations, operation))) return true;
  return (who.roles ?? []).some((/** @type {any} */ given) => {
    const role = ROLES[/** @type {keyof typeof ROLES} */ (given.role)];
    if (role === undefined || !covers(role[kind], operation)) return false;
    if (kind === "cluster") return given.prefix === "";
    return name.startsWith(given.prefix) && (!name.startsWith("_") || (given.role === "admin" && given.prefix === ""));
  });
}

/** Says why the one who looks may not administer; empty where he may. @param {any} who what `whoami` answered */
export function notAdmin(who) {
  if (onlyShows) return ONLY_SHOWS;
  return lacking(who, "admin", "cluster");
}

/**
 * Says what `who` lacks for `operation`, as one sentence; empty where nothing.
 * @param {any} who @param {string} operation @param {"topic"|"group"|"cluster"} kind @param {string} [name]
 */
export function lacking(who, operation, kind, name = "") {
  if (allowed(who, operation, kind, name)) return "";
  if (onlyShows && !SHOWS.includes(operation)) return ONLY_SHOWS;
  return `This needs the right to ${operation} ${kind === "cluster" ? "the cluster" : `${kind} ${name}`}.`;
}
