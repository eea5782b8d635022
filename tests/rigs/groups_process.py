"""One server's groups in a process of its own, over a log that is the same in every such process.

    python groups_process.py REDIS_URL TOPICS

Requests come as lines of JSON on standard input, answers go as lines to standard output, each when it is there. A
request to `create` a topic changes this process's view of the log, as a server's own does.
"""

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from groups_rig import FakeLog

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, MemberRequest
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.telemetry import logger


class GroupsProcess:
    """The parent's side."""

    def __init__(self, url: str, **topics: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, url, json.dumps(topics)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent,
            text=True,
        )
        self._answers: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, call: str, *arguments: Any) -> Future[Any]:
        """The answer's document, or `{"error_code": ...}`."""
        number = len(self._answers)
        answer = self._answers[number] = Future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, call, *arguments]) + "\n")
        self._process.stdin.flush()
        return answer

    def call(self, call: str, *arguments: Any) -> Any:
        return self.ask(call, *arguments).result(30)

    def kill(self) -> None:
        """SIGKILL. What was asked and not answered never is."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, answer = json.loads(line)
            self._answers[number].set_result(answer)


def _log(topics: dict[str, int]) -> FakeLog:
    log = FakeLog(**topics)
    for topic in log.topics():
        topic.topic_id = f"id-of-{topic.name}"
    return log


async def _serve(url: str, topics: dict[str, int]) -> None:
    log = _log(topics)
    redis = RedisConnection(RedisAccess(url))
    groups = Groups(redis, log, SystemClock(), logger("critical", "console"))
    groups.start()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tasks = set()
    while line := await lines.readline():
        number, call, *arguments = json.loads(line)
        task = loop.create_task(_answer(groups, log, number, call, arguments))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await groups.close()
    await redis.close()


async def _answer(groups: Groups, log: FakeLog, number: int, call: str, arguments: list[Any]) -> None:
    try:
        answer: Any = await _do(groups, log, call, *arguments)
    except SiltlogError as error:
        answer = {"error_code": error.error_code}
    print(json.dumps([number, answer]), flush=True)


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


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], json.loads(sys.argv[2])))
