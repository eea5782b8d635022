"""The HTTP API over a log in memory: a request becomes a reply, without a connection."""

import re
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.client.core import Request, Response
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.testing.call import LIMITS, Call, Steps, refusal, reply
from siltlog.testing.group_calls import GroupCalls
from siltlog.testing.log import MemoryLog
from siltlog.testing.redis import MemoryRedis
from siltlog.testing.topic_calls import TopicCalls

NAME = "([^/]+)"
TOPIC = f"/v1/topics/{NAME}"
GROUP = f"/v1/groups/{NAME}"


class Routes:
    """Used by one thread at a time."""

    def __init__(self, log: MemoryLog, redis: MemoryRedis, clock: Clock, auto_create_partitions: int) -> None:
        # Nothing in memory is a file, so the threads that would read files never begin.
        fetcher = Fetcher(log, RowGroups(log.store))
        topics = TopicCalls(log, fetcher, clock, auto_create_partitions)
        groups = self.groups = GroupCalls(log, fetcher, redis, clock)
        table: tuple[tuple[str, str, Callable[[Call], Response | Steps]], ...] = (
            ("POST", f"{TOPIC}/records", topics.publish),
            ("POST", f"{TOPIC}/producers/{NAME}", topics.claim),
            ("POST", "/v1/fetch", topics.fetch),
            ("GET", f"{TOPIC}/offsets", topics.offsets),
            ("GET", "/v1/topics", topics.list_topics),
            ("POST", "/v1/topics", topics.create_topic),
            ("PUT", TOPIC, topics.put_topic),
            ("GET", TOPIC, topics.describe_topic),
            ("PATCH", TOPIC, topics.alter_topic),
            ("DELETE", TOPIC, topics.delete_topic),
            ("DELETE", f"{TOPIC}/partitions/([0-9]+)/records", topics.delete_records),
            ("GET", f"{TOPIC}/dlq", groups.list_dead_letters),
            ("POST", f"{TOPIC}/dlq/replay", groups.replay_dead_letters),
            ("POST", f"{TOPIC}/dlq/discard", groups.discard_dead_letters),
            ("PUT", f"{GROUP}/members/{NAME}", groups.heartbeat),
            ("DELETE", f"{GROUP}/members/{NAME}", groups.leave),
            ("PUT", f"{GROUP}/offsets", groups.commit),
            ("GET", f"{GROUP}/offsets", groups.group_offsets),
            ("POST", f"{GROUP}/offsets/reset", groups.reset_group),
            ("POST", f"{GROUP}/attempts", groups.attempt),
            ("POST", f"{GROUP}/dead_letters", groups.dead_letter),
            ("GET", "/v1/groups", groups.list_groups),
            ("GET", GROUP, groups.describe_group),
            ("DELETE", GROUP, groups.delete_group),
            ("GET", "/v1/cluster", _cluster),
        )
        self._table = [(method, re.compile(path), answer) for method, path, answer in table]

    def operation(self, request: Request) -> str:
        """Names what is asked for; empty where nothing here does that."""
        found = self._find(request)
        return "" if found is None else found[0].__name__

    def reply(self, request: Request) -> Steps:
        """The reply, also where the request is refused."""
        found = self._find(request)
        try:
            if found is None:
                raise problem(
                    "not_found",
                    f"the server in memory has no {request.method} {urlsplit(request.path).path}: "
                    "test that against a real one, siltlog.testing.running_server()",
                )
            answer, path_names = found
            headers = {name.lower(): value for name, value in request.headers.items()}
            body = b"".join(bytes(piece) for piece in request.body)
            self.groups.tick()
            given = answer(Call(path_names, dict(parse_qsl(urlsplit(request.path).query)), headers, body))
            return given if isinstance(given, Response) else (yield from given)
        except SiltlogError as error:
            return refusal(error)

    def _find(self, request: Request) -> tuple[Callable[[Call], Response | Steps], tuple[str, ...]] | None:
        path = urlsplit(request.path).path
        for method, pattern, answer in self._table:
            found = pattern.fullmatch(path) if method == request.method else None
            if found is not None:
                return answer, tuple(unquote(name) for name in found.groups())
        return None


def _cluster(call: Call) -> Response:
    return reply(
        {
            "version": "0",
            "cluster_id": "memory",
            "view": None,
            "controller": None,
            "nodes": [],
            "limits": LIMITS,
            "features": [],
        }
    )
