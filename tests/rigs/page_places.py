"""All places of the page, and a server on which each of them has something to show."""

from collections.abc import Iterable
from typing import Any

from browser import Page
from http_rig import Http

from siltlog import Consumer

TOPIC, GROUP = "orders", "billing"
PLACES = (
    "",
    "?range=30d",
    "topics",
    "topics?new=1",
    f"topics/{TOPIC}",
    f"topics/{TOPIC}/records?search=1&contains=tea",
    f"topics/{TOPIC}/partitions",
    f"topics/{TOPIC}/files",
    f"topics/{TOPIC}/files?partition=0&first=0&last=99",
    f"topics/{TOPIC}/groups",
    f"topics/{TOPIC}/settings",
    f"topics/{TOPIC}/publish",
    f"topics/{TOPIC}/publish?partition=0&offset=0",
    "topics/nowhere",
    "groups",
    f"groups/{GROUP}",
    "groups/nowhere",
    "dead_letters",
    f"dead_letters/{TOPIC}",
    "jobs",
    "jobs/compact",
    "sql",
    "cluster",
    "metrics",
    f"metrics?topic={TOPIC}",
    f"metrics?group={GROUP}",
    "access",
    "audit",
    "settings",
    "elsewhere",
)
"""Each page has one place at least, with its tabs and with what is refused."""
_GO = """(here) => location.hash === here || new Promise((gone) => {
  addEventListener("hashchange", () => gone(true), { once: true });
  location.hash = here;
})"""
"""The page hears of it first, and draws the place before this ends."""
_SETTLED = """() => document.querySelector('main h1') !== null &&
  ![...document.querySelectorAll('main [role=status]')]
    .some((each) => /^(Loading|Looking) …$/.test(each.textContent.trim()))"""


def furnish(url: str, records: Iterable[dict[str, Any]] = ()) -> None:
    """Makes a topic with records and a dead letter, and a group that has read some of them; waits until its table has
    files."""
    http = Http(url)
    http.create(TOPIC, partitions=2)
    http.publish(TOPIC, *(records or ({"key": f"k{n}", "value": {"item": "tea", "n": n}} for n in range(40))))
    with Consumer(url, group=GROUP, topics=[TOPIC], stop_at="latest", auto_offset_reset="earliest") as consumer:
        assert next(iter(consumer), None) is not None
        consumer.commit()
    while not http.get(f"/v1/topics/{TOPIC}/files").json["files"]:
        http.get(f"/v1/topics/{TOPIC}/partitions/0/records?offset=latest&wait_ms=200")


def visit(page: Page, place: str) -> None:
    """Goes there within the page, and waits until it shows what it asked for."""
    page.at.evaluate(_GO, f"#/{place}")
    page.at.wait_for_function(_SETTLED)
