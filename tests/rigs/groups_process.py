"""One server's groups in a process of its own, over a log that is the same in every such process.

A request to `create` a topic changes this process's view of the log, as a server's own does.
"""

import asyncio
import multiprocessing
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from groups_rig import FakeLog
from started import process

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, MemberRequest
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.telemetry import logger

ANSWER_SECONDS_MAX = 60.0


class GroupsProcess:
    """The parent's side."""

    def __init__(self, url: str, **topics: int) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = process(_serve, theirs, url, topics)
        self._process.start()
        theirs.close()
        self._answers: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, call: str, *arguments: Any) -> Future[Any]:
        """The answer's document, or `{"error_code": ...}`."""
        number = len(self._answers)
        answer = self._answers[number] = Future()
        self._ours.send([number, call, *arguments])
        return answer

    def call(self, call: str, *arguments: Any) -> Any:
        return self.ask(call, *arguments).result(ANSWER_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL. What was asked and not answered never is."""
        self._process.kill()
        self._process.join()
        self._reader.join()
        self._ours.close()

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, answer = self._ours.recv()
                self._answers[number].set_result(answer)


def _log(topics: dict[str, int]) -> FakeLog:
    log = FakeLog(**topics)
    for topic in log.topics():
        topic.topic_id = f"id-of-{topic.name}"
    return log


def _serve(asked: Connection, url: str, topics: dict[str, int]) -> None:
    asyncio.run(_answer_all(asked, url, topics))


async def _answer_all(asked: Connection, url: str, topics: dict[str, int]) -> None:
    log = _log(topics)
    redis = RedisConnection(RedisAccess(url))
    groups = Groups(redis, log, SystemClock(), logger("critical", "console"))
    groups.start()
    tasks = set()
    with suppress(EOFError):
        while True:
            number, call, *arguments = await asyncio.to_thread(asked.recv)
            task = asyncio.create_task(_answer(asked, groups, log, number, call, arguments))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await groups.close()
    await redis.close()


async def _answer(
    asked: Connection, groups: Groups, log: FakeLog, number: int, call: str, arguments: list[Any]
) -> None:
    try:
        answer: Any = await _do(groups, log, call, *arguments)
    except SiltlogError as error:
        answer = {"error_code": error.error_code}
    asked.send([number, answer])


async def _do(groups: Groups, log: FakeLog, call: str, *arguments: Any) -> Any:
    import msgspec

    if call == "beat":
        member, body = arguments
        told = await groups.members.heartbeat("g", member, msgspec.convert(body, MemberRequest))
        held = None
        if told.assignment is not None:
            held = {f"{key.topic}/{key.partition}": offset for key, offset in told.assignment}
        return {"generation": told.generation, "held": held, "releasing": told.releasing}
    if call == "commit":
        return await groups.offsets.commit("g", msgspec.convert(arguments[0], CommitRequest))
    if call == "create":
        name, partitions = arguments
        log.create(name, partitions).topic_id = f"id-of-{name}"
        return None
    state = await groups.describe("g")
    return {
        "state": state.state,
        "members": {member.member: sorted(key.partition for key in member.partitions) for member in state.members},
    }
