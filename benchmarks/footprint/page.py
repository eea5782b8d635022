"""The page: what it weighs, when it is there, how long it keeps a browser busy, what viewers cost publishing."""

import asyncio
import gzip
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from threading import Thread
from typing import Any

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Load
from benchmarks.loads.records import json_body, json_record
from siltlog import TopicPartition
from siltlog.infra import names
from siltlog.ui.files import first_modules, read_files

FIRST_KB_MAX, SCRIPT_KB_MAX, STYLE_KB_MAX = 90.0, 150.0, 12.0
FIRST_PAINT_MS_MAX, USABLE_MS_MAX, TASK_MS_MAX = 300.0, 500.0, 50.0
TOPICS, QUICK_TOPICS = 1_000, 50
PARTITIONS, QUICK_PARTITIONS = 5_000, 200
LOADS, QUICK_LOADS = 9, 3
MAKING = 8
"""So many topics are made at once."""
VIEWERS = 50
CONNECTIONS = 64
RECORD_BYTES = 100
TURNS, QUICK_TURNS = 8, 2
RATIO_MIN = 0.97
GROUP = "broad"
_WATCH = """
  window.tasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((each) => window.tasks.push(each.duration)))
    .observe({ type: "longtask", buffered: true });
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".tiles")) return;
    window.usable = performance.now();
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });
"""
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_EVENTS = "/v1/events?kinds=overview,topics"


def page(bench: Bench) -> Iterator[Figure]:
    """Takes the browser's own clock for what a browser does, and loads each page with nothing in its cache."""
    served = {f"{folder}/{name}": shown.codings[""] for (folder, name), shown in read_files().files.items()}
    scripts = [path for path in served if path.endswith(".js")]
    first = [*first_modules(served), *(path for path in scripts if path.startswith("vendor/uplot"))]
    for label, paths, kilobytes in (
        ("scripts of the first load, gzipped", first, FIRST_KB_MAX),
        ("all scripts, gzipped", scripts, SCRIPT_KB_MAX),
        ("styles, gzipped", [path for path in served if path.endswith(".css")], STYLE_KB_MAX),
    ):
        weight = sum(len(gzip.compress(served[path])) for path in paths)
        yield Figure(label, weight / 1_000, "KB", at_most=kilobytes)
    with bench.server() as server:
        yield from _seen(bench, server)
    yield from _watched(bench)


def _seen(bench: Bench, server: Server) -> Iterator[Figure]:
    topics, partitions = (QUICK_TOPICS, QUICK_PARTITIONS) if bench.quick else (TOPICS, PARTITIONS)
    _fill(server, topics, partitions)
    with _browser() as browser:
        painted, usable, tasks = [], [], []
        for _ in range(QUICK_LOADS if bench.quick else LOADS):
            with _opened(browser) as at:
                at.goto(f"{server.url}/ui/")
                at.wait_for_function("() => window.usable !== undefined")
                at.wait_for_function(_PAINTED)
                painted.append(at.evaluate(_PAINTED))
                usable.append(at.evaluate("window.usable"))
        for place in ("", "topics", "groups", f"groups/{GROUP}", f"topics/{GROUP}/partitions"):
            with _opened(browser) as at:
                at.goto(f"{server.url}/ui/#/{place}")
                at.wait_for_timeout(bench.seconds * 1_000)
                tasks.append(max(at.evaluate("window.tasks"), default=0.0))
    yield Figure("first paint on loopback", median(painted), "ms", at_most=FIRST_PAINT_MS_MAX)
    yield Figure(f"overview of {topics:,} topics usable", median(usable), "ms", at_most=USABLE_MS_MAX)
    yield Figure(
        f"longest task, lists of {topics:,} topics and {partitions:,} partitions", max(tasks), "ms", at_most=TASK_MS_MAX
    )


def _fill(server: Server, topics: int, partitions: int) -> None:
    with ThreadPoolExecutor(MAKING) as making:
        list(making.map(lambda number: server.admin.create_topic(f"topic-{number:04}", 1), range(topics - 1)))
    server.admin.create_topic(GROUP, partitions)
    for number in range(topics // 10):
        server.admin.set_group_offsets(f"group-{number:04}", {TopicPartition(f"topic-{number:04}", 0): 0})
    server.admin.set_group_offsets(GROUP, {TopicPartition(GROUP, partition): 0 for partition in range(partitions)})


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise RuntimeError("the page is measured in Chromium, and there is none (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def _opened(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(_WATCH)
    yield context.new_page()
    context.close()


def _watched(bench: Bench) -> Iterator[Figure]:
    """By turns on one server, so that what slows the machine slows both."""
    body = json_body(json_record(RECORD_BYTES), 1)
    none, many = "nobody watches", f"{VIEWERS} watch"
    loads: dict[str, list[Load]] = {none: [], many: []}
    with bench.server(ui_viewers_max=VIEWERS) as server:

        def load() -> Load:
            return bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS)

        for _ in range(QUICK_TURNS if bench.quick else TURNS):
            loads[none].append(load())
            with _viewers(server.port):
                loads[many].append(load())
    for label, turns in loads.items():
        yield Figure(
            f"publishes to {TOPIC} while {label}",
            median(turn.per_second for turn in turns),
            "records/s",
            p50_ms=median(turn.p50_ms for turn in turns),
            p99_ms=median(turn.p99_ms for turn in turns),
        )
    ratios = [watched.per_second / alone.per_second for alone, watched in zip(*loads.values(), strict=True)]
    yield Figure(f"the rate while {VIEWERS} watch, of that while nobody does", median(ratios), "", at_least=RATIO_MIN)


@contextmanager
def _viewers(port: int) -> Iterator[None]:
    """Reads VIEWERS streams of events on a thread, and throws them away."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    watching = asyncio.run_coroutine_threadsafe(_open(port), loop).result()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_end(watching), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(port: int) -> list["asyncio.Task[None]"]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(VIEWERS)]
    for reader, writer in opened:
        writer.write(f"GET {_EVENTS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
    return [asyncio.create_task(_drain(reader, writer)) for reader, writer in opened]


async def _drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(65_536):
            pass
    finally:
        writer.close()


async def _end(watching: list["asyncio.Task[None]"]) -> None:
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
