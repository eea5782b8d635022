"""Pictures of the page for its documentation, at a server with data that was made up: `make pictures`."""

import io
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from browser import Page, chromium
from http_rig import Http
from letters_rig import Member
from page_places import visit
from PIL import Image

from siltlog.testing import running_server

COLOURS = 96
WIDE, PHONE = {"width": 1180, "height": 760}, {"width": 390, "height": 780}
# Each picture: its place, the window, the theme, and how much of the place is shown.
PICTURES: dict[str, tuple[str, dict[str, int], str]] = {
    "overview": ("", WIDE, "light"),
    "overview-dark": ("", WIDE, "dark"),
    "topics": ("topics?sort=records", WIDE, "light"),
    "records-dark": ("topics/orders", WIDE, "dark"),
    "group": ("groups/billing", WIDE, "light"),
    "phone": ("", PHONE, "light"),
    "phone-topics-dark": ("topics?sort=records", PHONE, "dark"),
}
TOPICS = {"orders": 40, "payments": 24, "shipments": 12, "flights": 9, "clicks": 30, "refunds": 3}
"""How many records come at once."""
ITEMS = ("tea", "coffee", "cocoa", "maté")
PEOPLE = ("ada", "bob", "cleo", "dan", "eve")
READ_MAX = 300
_RATES = "() => ![...document.querySelectorAll('td[data-title=\"In/s\"]')].every((each) => each.textContent === '–')"
SEED = 20_261_121
SOON_SECONDS = 60.0


def take(folder: Path, names: tuple[str, ...] = tuple(PICTURES)) -> None:
    """Writes the pictures of these names into `folder`."""
    with _lively() as url, chromium() as browser:
        for name in names:
            place, viewport, theme = PICTURES[name]
            page = Page(browser, url, viewport=viewport, color_scheme=theme, timezone_id="UTC", reduced_motion="reduce")
            page.context.route("**/v1/metrics/history?*", _past)
            page.go("")
            page.at.locator(".reached.live").wait_for()
            visit(page, place)
            if name.startswith("records"):
                page.at.locator("tr[data-row]").nth(8).wait_for()
                page.at.get_by_role("button", name="Pause").click()
                page.at.locator("tr[data-row]").nth(2).click()
            else:
                page.at.locator("canvas, svg.spark path").first.wait_for(state="attached")
            if place.startswith("topics?"):
                page.at.wait_for_function(_RATES)
            page.at.mouse.move(0, 0)
            (folder / f"{name}.png").write_bytes(_reduced(page.at.screenshot()))
            page.context.close()


def _reduced(png: bytes) -> bytes:
    reduced = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return out.getvalue()


@contextmanager
def _lively() -> Iterator[str]:
    """Gives the address of a server to which records come, and whose groups are behind, each in its way."""
    with running_server(flush_ms=500) as server:
        http, random, ended = Http(server.url), Random(SEED), Event()
        for topic in TOPICS:
            http.create(topic, partitions=2, retention_ms=7 * 86_400_000)
        for _ in range(20):
            _publish(http, random)
        members = [Member(http, group, topic, f"{group}-1") for group, topic in _GROUPS.items()]
        for member in members:
            for partition in range(2):
                member.commit(random.randrange(READ_MAX // 10, READ_MAX) // 8, partition)
        members[1].bury(READ_MAX // 8, error="ValueError: amount is below 0")
        coming = Thread(target=_come, args=(http, random, ended))
        coming.start()
        try:
            _await_rates(http)
            yield server.url
        finally:
            ended.set()
            coming.join()


_GROUPS = {"billing": "orders", "ledger": "payments", "tracking": "shipments"}


def _publish(http: Http, random: Random) -> None:
    for topic, records in TOPICS.items():
        http.publish(topic, *(_record(random, topic) for _ in range(records)))


def _record(random: Random, topic: str) -> dict[str, Any]:
    value = {"id": random.randrange(10**6), "item": random.choice(ITEMS), "price": round(random.uniform(2, 9), 2)}
    headers = {"source": "web" if topic == "clicks" else "shop"}
    return {"key": random.choice(PEOPLE), "value": {**value, "user": {"id": random.randrange(100)}}, "headers": headers}


def _come(http: Http, random: Random, ended: Event) -> None:
    while not ended.wait(0.2):
        _publish(http, random)


def _await_rates(http: Http) -> None:
    end = time.monotonic() + SOON_SECONDS
    while not all(topic["sort_value"] > 0 for topic in http.get("/v1/topics?sort=rate&limit=3").json["topics"]):
        assert time.monotonic() < end, "records come, and no rate is told"


def _past(route: Any) -> None:
    """Puts an hour that was made up where a server that has just begun has none."""
    answer = route.fetch()
    told = answer.json()
    length = len(told["times"])
    query = parse_qs(urlsplit(route.request.url).query)
    asked, label = query["series"][0].split(","), {name: query[name][0] for name in ("topic", "group") if name in query}
    told["series"] = [
        {"name": name, "labels": labels, "values": _wave(height, phase, length)}
        for name in asked
        for labels, height, phase in _WAVES.get(name, ())
        if label.items() <= labels.items()
    ]
    route.fulfill(response=answer, body=json.dumps(told))


def _wave(height: float, phase: float, length: int) -> list[float]:
    random = Random(f"{SEED} {height} {phase}")
    steady = (1 + 0.35 * math.sin(phase + at / length * 9) for at in range(length))
    return [round(height * each * random.uniform(0.93, 1.07), 4) for each in steady]


_WAVES: dict[str, list[tuple[dict[str, str], float, float]]] = {
    "silt_records_total": [
        ({}, 590, 0.0),
        *(({"topic": topic}, 5 * records, at) for at, (topic, records) in enumerate(TOPICS.items())),
    ],
    "silt_read_records_total": [({}, 410, 0.7)],
    "silt_ack_seconds": [({"quantile": "0.5"}, 0.0021, 1.0), ({"quantile": "0.99"}, 0.0074, 2.0)],
    "silt_table_lag_seconds": [({}, 0.9, 3.0)],
    "silt_group_lag_seconds": [({"group": group}, 20.0 - 6 * at, at) for at, group in enumerate(_GROUPS)],
    "silt_group_lag_records": [({"group": group}, 4_100.0 - 1_300 * at, at) for at, group in enumerate(_GROUPS)],
}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    take(place)
