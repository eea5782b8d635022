"""`/v1/debug/profile` and `silt profile`: what a server is at, while it has something to do."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, secured_server
from http_rig import Http
from jsonschema import Draft7Validator
from waiting import until

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.security.audit.chain import told
from siltlog.server.control import profiles
from siltlog.server.control.profiles import DEPTH_MAX, SAMPLES_A_SECOND, Sampler, waiting

SCHEMA = Path(__file__).parents[3] / "rigs" / "speedscope_schema.json"
"""https://www.speedscope.app/file-format-schema.json"""
CANARY = "canary-in-a-record"
PATH = "/v1/debug/profile"


def fits(document: Any) -> None:
    Draft7Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert abs(sum(profile["weights"]) - profile["endValue"]) < 0.01


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server(debug="on") as server:
        server.admin.create("busy")
        yield server


@pytest.fixture
def load(secured: Secured) -> Iterator[list[int]]:
    """What its publishes are answered with."""
    done, statuses = threading.Event(), []

    def publish() -> None:
        http = Http(secured.server.url, token=secured.admin.token or "")
        while not done.is_set():
            statuses.append(http.publish("busy", *[{"value": CANARY}] * 20).status)

    thread = threading.Thread(target=publish)
    thread.start()
    until(lambda: bool(statuses))
    yield statuses
    done.set()
    thread.join()


@pytest.mark.rule("LG6")
def test_where_a_server_under_load_is(secured: Secured, load: list[int]) -> None:
    # Who publishes may have stood still for as long as was looked.
    for _ in range(5):
        reply = secured.admin.json("POST", PATH, {"kind": "cpu", "seconds": 1.5})
        assert reply.status == 200, reply
        document = reply.json
        fits(document)
        files = {frame["file"] for frame in document["shared"]["frames"]}
        if any(file.endswith("ingest/wal/disk.py") for file in files):
            break
    else:
        pytest.fail(f"it is nowhere near the disk: {sorted(files)}")
    assert {"MainThread"} <= {profile["name"] for profile in document["profiles"]}
    assert 1.0 < document["profiles"][0]["endValue"] < 30
    assert CANARY not in reply.body.decode()
    assert set(load) == {200}, "publishes went on"


@pytest.mark.rule("LG6")
def test_what_memory_grows_by_and_what_tasks_wait_for(secured: Secured, load: list[int]) -> None:
    grown = secured.admin.json("POST", PATH, {"kind": "memory", "seconds": 0.5}).json
    assert grown["traced_bytes"] > 0 and grown["places"] and len(grown["places"]) <= profiles.PLACES_MAX
    assert {"file", "line", "bytes_more", "blocks_more"} <= grown["places"][0].keys()
    reply = secured.admin.json("POST", PATH, {"kind": "tasks"})
    waits = " ".join(place for sort in reply.json["sorts"] for place in sort["waits_at"])
    assert "Flusher._decide" in waits
    assert reply.json["tasks"] >= len(reply.json["sorts"]) > 3
    assert CANARY not in json.dumps(grown) + reply.body.decode()
    assert set(load) == {200}


@pytest.mark.rule("LG6")
def test_who_may_have_it_one_at_a_time_and_audited(secured: Secured) -> None:
    _, operator = secured.key("ops", ("operator", ""))
    assert operator.json("POST", PATH, {"kind": "tasks"}).status == 403
    first = threading.Thread()
    # The first may end before the second is asked for, where the machine is busy.
    while (second := secured.admin.json("POST", PATH, {"kind": "tasks"})).status == 200:
        if first.ident is None or not first.is_alive():
            first = threading.Thread(target=secured.admin.json, args=("POST", PATH, {"kind": "cpu", "seconds": 3}))
            first.start()
    assert (second.status, second.error_code) == (503, "overloaded")
    first.join()
    for wrong in ({"kind": "cpu", "seconds": 61}, {"kind": "cpu", "seconds": 0}, {"kind": "disk"}, {}):
        assert secured.admin.json("POST", PATH, wrong).status == 422
    records = [told(base64.b64decode(each["value_base64"])) for each in secured.admin.read(names.AUDIT_TOPIC)]
    assert ("profile", "begun", "profile cpu 3 s") in {(one.operation, one.outcome, one.detail) for one in records}


def test_the_command_writes_a_file(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILT_TOKEN", secured.admin.token or "")
    at = ("--url", secured.server.url)
    assert run(["profile", "cpu", "--seconds", "0.5", *at]) == 0
    fits(json.loads((tmp_path / "silt-profile-cpu.json").read_bytes()))
    assert run(["profile", "tasks", "--file", "waits.json", *at]) == 0
    assert json.loads((tmp_path / "waits.json").read_bytes())["kind"] == "tasks"


def test_a_server_that_does_not_say_so_is_not_profiled(http: Http) -> None:
    refused = http.json("POST", PATH, {"kind": "tasks"})
    assert (refused.status, refused.error_code) == (404, "not_found")
    assert "SILT_DEBUG=on" in refused.json["detail"]


def test_a_thread_that_stays_makes_one_sample_and_what_is_deep_is_cut() -> None:
    import sys

    sampler = Sampler(time.monotonic)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            frames = {1: sys._getframe(), 2: sys._getframe(left + 1)}
            for _ in range(3):
                sampler.note(frames, 1 / SAMPLES_A_SECOND)

    deep(DEPTH_MAX * 2)
    document = sampler.document("here", {1: "deep"})
    fits(document)
    assert [len(profile["samples"]) for profile in document["profiles"]] == [1, 1]
    assert len(document["profiles"][0]["samples"][0]) == DEPTH_MAX
    assert [profile["name"] for profile in document["profiles"]] == ["deep", "thread 2"]


def test_tasks_that_wait_at_one_place_are_told_of_together() -> None:
    async def inner(event: asyncio.Event) -> None:
        await event.wait()

    async def outer(event: asyncio.Event) -> None:
        await inner(event)

    async def all_of_them() -> dict[str, Any]:
        event = asyncio.Event()
        tasks = [asyncio.create_task(outer(event)) for _ in range(3)]
        await asyncio.sleep(0)
        found = waiting(tasks)
        event.set()
        await asyncio.gather(*tasks)
        return found

    found = asyncio.run(all_of_them())
    [sort] = found["sorts"]
    assert (found["tasks"], sort["count"]) == (3, 3)
    assert ["outer" in sort["waits_at"][0], "inner" in sort["waits_at"][1], "wait" in sort["waits_at"][2]] == [True] * 3
