/** Names in DuckDB's SQL: how one is written, and which fit what is being typed. Pure. */

/** The columns that every topic has, as the server's SQL names and types them. */
export const COLUMNS = [
  ["partition", "INTEGER"],
  ["offset", "BIGINT"],
  ["timestamp", "TIMESTAMP WITH TIME ZONE"],
  ["key", "BLOB"],
  ["value", "BLOB"],
  ["headers", 'STRUCT("key" VARCHAR, "value" BLOB)[]'],
  ["producer_id", "VARCHAR"],
  ["producer_epoch", "INTEGER"],
  ["sequence", "BIGINT"],
];
const WORDS = [
  "select", "from", "where", "group by", "order by", "having", "limit", "join", "left join", "on", "with", "as", "distinct",
  "count(*)", "sum(", "avg(", "min(", "max(", "string(", "get_json_object(", "date_trunc(", "cast(", "case", "when", "then", "else",
  "end", "and", "or", "not", "is null", "between", "in", "like", "desc", "union all", "now()", "interval",
];
/** Words that DuckDB keeps for itself: a name that is one needs quotes. */
const RESERVED = new Set(
  ("all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default deferrable desc " +
    "describe distinct do else end except false fetch for foreign from group having in initially intersect into lambda lateral leading " +
    "limit not null offset on only or order pivot pivot_longer pivot_wider placing primary qualify references returning select show some " +
    "summarize symmetric table then to trailing true union unique unpivot using variadic when where window with").split(" "),
);
const SHOWN_MAX = 8;

/** Writes a name so that it is one: in double quotes where it must be. @param {string} name */
export function quoted(name) {
  if (/^[a-z_][a-z0-9_]*$/i.test(name) && !RESERVED.has(name.toLowerCase())) return name;
  return `"${name.replaceAll('"', '""')}"`;
}

/** Gives where the word that ends at a place begins: letters, and an open quote before them. @param {string} text @param {number} at */
export function begun(text, at) {
  const found = /(?:"[^"\n]*|[\w.-]*)$/.exec(text.slice(0, at));
  return found === null ? at : found.index;
}

/**
 * Gives what the word before a place may become, names as they are to be written; nothing within a text or a comment.
 * @param {string} text @param {number} at @param {string[]} tables
 */
export function completions(text, at, tables) {
  const word = text.slice(begun(text, at), at).replace(/^"/, "").toLowerCase();
  if (word === "" || within(text.slice(0, at))) return [];
  const names = [...tables, ...COLUMNS.map(([name]) => name)].map((name) => [name, quoted(name)]);
  return [...names, ...WORDS.map((each) => [each, each])]
    .filter(([name, written]) => name.toLowerCase().startsWith(word) && written !== text.slice(begun(text, at), at))
    .map(([, written]) => written)
    .slice(0, SHOWN_MAX);
}

/** Tells whether what follows would be in a text or a comment. @param {string} before */
function within(before) {
  const left = before.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*\n|\/\*[\s\S]*?\*\//g, "");
  return /'|--|\/\*/.test(left);
}
