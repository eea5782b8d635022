/** How a list is cut and ranked, as its address says. */
import { setQuery } from "./route.js";

const BY_NAME = "name";

/** Names go up by themselves, amounts down. @param {string} sort */
function usual(sort) {
  return sort === BY_NAME ? "asc" : "desc";
}

/** @param {URLSearchParams} query @param {string} first by what it is ranked where the address does not say */
export function ranking(query, first) {
  const prefix = query.get("prefix") ?? "";
  const sort = query.get("sort") ?? first;
  const order = query.get("order") ?? usual(sort);
  return {
    prefix,
    sort,
    order,
    after: query.get("after") ?? "",
    /** What of it stays from page to page. */
    asked: { prefix, sort, order },
    /** Ranks by something; by the same once more: the other way round. @param {string} by */
    rank(by) {
      const turned = order === "desc" ? "asc" : "desc";
      setQuery({ prefix, sort: by, order: by === sort ? turned : usual(by) });
    },
  };
}
