"""A client's calls to a server, without IO: each yields its requests, is sent the replies, returns the result.

`Caller.run` and `AsyncCaller.run` drive one. A call that is told of a refusal gets the SiltlogError thrown in.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from siltlog.infra import names
from siltlog.infra.client.core import Request, Response, json_request
from siltlog.infra.client.record import TimeLike, TopicPartition, checked_partition, time_us
from siltlog.infra.clock import format_us
from siltlog.infra.errors import ConfigError, OutcomeUnknown, from_problem

T = TypeVar("T")
Call = Generator[Request, Response, T]
Document = dict[str, Any]
"""A JSON object of the HTTP API."""


class _SearchLine(msgspec.Struct):
    record: msgspec.Raw = msgspec.Raw()
    problem: Document | None = None
    done: Document | None = None


_search_line = msgspec.json.Decoder(_SearchLine).decode

PAGE = 1_000
REPLAY_TIMEOUT_MS = 600_000
"""It takes as long as it has dead letters."""
TopicSort = Literal["name", "records", "bytes", "files", "rate", "lag"]
GroupSort = Literal["name", "lag", "members"]
Order = Literal["asc", "desc"]
ProfileKind = Literal["cpu", "memory", "tasks"]
PROFILE_TIMEOUT_MS = 30_000
"""How much longer a profile may take than it lasts: what memory took is counted at its end."""
SETTLE_TIMEOUT_MS = 180_000
"""It flushes everything, and then has files deleted."""
WISH_TIMEOUT_MS = 40_000
"""Nodes tell each other through the object store what they are to do."""


def create_topic(
    name: str, partitions: int | None, config: Mapping[str, int | str] | None, exist_ok: bool
) -> Call[Document]:
    document: Document = {"config": dict(config or {})}
    if partitions is not None:
        document["partitions"] = partitions
    if exist_ok:
        return document_of("PUT", topic_path(name), document)
    return document_of("POST", "/v1/topics", {"name": name, **document})


def topics(prefix: str | None, sort: TopicSort | None = None, order: Order | None = None) -> Call[list[Document]]:
    return pages("/v1/topics", "topics", {"prefix": prefix, "sort": sort, "order": order})


def topic(name: str) -> Call[Document]:
    return document_of("GET", topic_path(name))


def alter_topic(name: str, partitions: int | None, config: Mapping[str, int | str | None] | None) -> Call[Document]:
    document: Document = {} if partitions is None else {"partitions": partitions}
    if config:
        document["config"] = dict(config)
    return document_of("PATCH", topic_path(name), document)


def delete_topic(name: str) -> Call[None]:
    return nothing_of("DELETE", topic_path(name))


def offsets(topic: str, timestamp: TimeLike | None = None) -> Call[Document]:
    """The topic's id and, in `partitions`, each one's bounds; with `timestamp` the lowest `offset` at or after it."""
    when = None if timestamp is None else format_us(time_us(timestamp))
    return document_of("GET", f"{topic_path(topic)}/offsets", query={"timestamp": when})


def delete_records(topic: str, partition: int, before_offset: int | str) -> Call[Document]:
    path = f"{topic_path(topic)}/partitions/{partition}/records"
    return document_of("DELETE", path, query={"before_offset": str(before_offset)})


class Searched(NamedTuple):
    """The lines of one reply of a search: record objects as they came, and `done`."""

    records: list[msgspec.Raw]
    done: Document


def search(topic: str, asked: Mapping[str, Any], timeout_ms: int) -> Call[Searched]:
    """Searches for so long. Raises what the search ended by where that is a problem, and nothing was found before."""
    request = json_request(
        "POST",
        f"{topic_path(topic)}/search",
        {**asked, "timeout_ms": timeout_ms},
        accept=names.MEDIA_NDJSON,
        repeatable=True,
    )
    reply = yield request
    lines = [_search_line(line) for line in reply.body.splitlines()]
    records = [line.record for line in lines if line.record]
    problem = next((line.problem for line in lines if line.problem is not None), None)
    if problem is not None and not records:
        raise from_problem(problem, problem["status"])
    done = lines[-1].done if lines else None
    if done is None:
        raise OutcomeUnknown("the search was cut off before its end; try again", error_code="internal")
    return Searched(records, done)


def groups(prefix: str | None, topic: str | None, sort: GroupSort | None, order: Order | None) -> Call[list[Document]]:
    return pages("/v1/groups", "groups", {"prefix": prefix, "topic": topic, "sort": sort, "order": order})


def group(name: str) -> Call[Document]:
    return document_of("GET", group_path(name))


def group_offsets(group: str) -> Call[dict[TopicPartition, int]]:
    reply = yield from document_of("GET", f"{group_path(group)}/offsets")
    return {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in reply["offsets"]}


def set_group_offsets(group: str, offsets: Mapping[TopicPartition, int]) -> Call[None]:
    return nothing_of("PUT", f"{group_path(group)}/offsets", {"offsets": offset_list(offsets)})


def reset_group(
    group: str,
    to: str,
    topics: str | Sequence[str] | None,
    partitions: Sequence[TopicPartition] | None,
    timestamp: TimeLike | None,
    offset: int | None,
    shift: int | None,
    dry_run: bool,
) -> Call[list[Document]]:
    document: Document = {"to": to, "dry_run": dry_run}
    if topics is not None:
        document["topics"] = topic_list(topics)
    if partitions is not None:
        checked = [checked_partition(at) for at in partitions]
        document["partitions"] = [{"topic": at.topic, "partition": at.partition} for at in checked]
    if timestamp is not None:
        document["timestamp"] = format_us(time_us(timestamp))
    document |= {name: value for name, value in (("offset", offset), ("shift", shift)) if value is not None}
    reply = yield from document_of("POST", f"{group_path(group)}/offsets/reset", document)
    moved: list[Document] = reply["offsets"]
    return moved


def delete_group(group: str) -> Call[None]:
    return nothing_of("DELETE", group_path(group))


class GroupRecord(NamedTuple):
    """A record, as the member that holds its partition names it."""

    group: str
    member_id: str
    generation: int
    at: TopicPartition
    offset: int

    def document(self) -> Document:
        return {
            "member_id": self.member_id,
            "generation": self.generation,
            "topic": self.at.topic,
            "partition": self.at.partition,
            "offset": self.offset,
        }


def count_attempt(record: GroupRecord, attempts_max: int | None = None) -> Call[Document]:
    """Once: who has to know whether it was counted asks again, and it counts twice.

    `attempts_max` is for a record that may have ended its consumer.
    """
    path = f"{group_path(record.group)}/attempts"
    asked = record.document() if attempts_max is None else {**record.document(), "attempts_max": attempts_max}
    reply = yield json_request("POST", path, asked, retry_timeout_ms=0)
    document: Document = reply.json()
    return document


def bury(record: GroupRecord, error: str) -> Call[Document]:
    """The record becomes a dead letter; it may be sent again."""
    path = f"{group_path(record.group)}/dead_letters"
    document = {**record.document(), "error": error}
    reply = yield json_request("POST", path, document, repeatable=True, retry_timeout_ms=0)
    found: Document = reply.json()
    return found


def replay_dead_letters(topic: str, replay_id: str, offsets: Iterable[tuple[int, int]] | None) -> Call[Document]:
    document: Document = {"replay_id": replay_id}
    if offsets is not None:
        document["offsets"] = [{"partition": partition, "offset": offset} for partition, offset in offsets]
    path = f"{topic_path(topic)}/dlq/replay"
    reply = yield json_request("POST", path, document, read_timeout_ms=REPLAY_TIMEOUT_MS, repeatable=True)
    found: Document = reply.json()
    return found


def dead_letters(topic: str, group: str | None, after: str | None, limit: int) -> Call[Document]:
    query = {"group": group, "after": after, "limit": limit}
    return document_of("GET", f"{topic_path(topic)}/dlq", query=query)


def discard_dead_letters(
    topic: str,
    offsets: Iterable[tuple[int, int]],
    ranges: Iterable[tuple[int, int, int]],
    reason: str,
) -> Call[Document]:
    document = {
        "offsets": [{"partition": partition, "offset": offset} for partition, offset in offsets],
        "ranges": [{"partition": at, "first_offset": first, "last_offset": last} for at, first, last in ranges],
        "reason": reason,
    }
    path = f"{topic_path(topic)}/dlq/discard"
    reply = yield json_request("POST", path, document, read_timeout_ms=REPLAY_TIMEOUT_MS, repeatable=True)
    found: Document = reply.json()
    return found


def cluster() -> Call[Document]:
    return document_of("GET", "/v1/cluster")


def nodes() -> Call[Document]:
    return document_of("GET", "/v1/nodes")


def config() -> Call[Document]:
    return document_of("GET", "/v1/config")


def change_config(changes: Mapping[str, int | str | None], version: str | None) -> Call[Document]:
    request = json_request("PATCH", "/v1/config", {"changes": dict(changes)})
    if version is not None:
        request = replace(request, headers={**request.headers, "If-Match": f'"{version}"'})
    reply = yield request
    document: Document = reply.json()
    return document


def drain_node(node: str) -> Call[None]:
    yield json_request("POST", f"{node_path(node)}/drain", repeatable=True, read_timeout_ms=WISH_TIMEOUT_MS)


def drain() -> Call[Document]:
    return document_of("POST", "/v1/drain")


def drain_state() -> Call[Document]:
    return document_of("GET", "/v1/drain")


def end_drain() -> Call[Document]:
    return document_of("DELETE", "/v1/drain")


def settle() -> Call[Document]:
    reply = yield json_request("POST", "/v1/settle", repeatable=True, read_timeout_ms=SETTLE_TIMEOUT_MS)
    document: Document = reply.json()
    return document


def profile(kind: ProfileKind, seconds: float) -> Call[Document]:
    body = {"kind": kind, "seconds": seconds}
    timeout_ms = int(seconds * 1000) + PROFILE_TIMEOUT_MS
    reply = yield json_request("POST", "/v1/debug/profile", body, read_timeout_ms=timeout_ms)
    document: Document = reply.json()
    return document


def remove_node(node: str) -> Call[None]:
    yield json_request("DELETE", node_path(node), read_timeout_ms=WISH_TIMEOUT_MS)


def move_topic(topic: str, node: str | None) -> Call[Document]:
    body = {} if node is None else {"node": node}
    reply = yield json_request("POST", f"{topic_path(topic)}/move", body, read_timeout_ms=WISH_TIMEOUT_MS)
    document: Document = reply.json()
    return document


def abandon_topic(topic: str) -> Call[Document]:
    reply = yield json_request("POST", f"{topic_path(topic)}/abandon", read_timeout_ms=WISH_TIMEOUT_MS)
    document: Document = reply.json()
    return document


def balance(dry_run: bool) -> Call[Document]:
    query = {"dry_run": "true" if dry_run else None}
    reply = yield json_request("POST", "/v1/cluster/balance", query=query, read_timeout_ms=WISH_TIMEOUT_MS)
    document: Document = reply.json()
    return document


def metrics() -> Call[str]:
    """The server's metrics in the form of Prometheus."""
    reply = yield json_request("GET", "/metrics", accept="*/*")
    return reply.body.decode()


def document_of(method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Call[Document]:
    """One request whose reply is a JSON object."""
    reply = yield json_request(method, path, body, query=query)
    document: Document = reply.json()
    return document


def nothing_of(method: str, path: str, body: Any = None) -> Call[None]:
    """One request whose reply has no body."""
    yield json_request(method, path, body)


def pages(path: str, member: str, query: Mapping[str, str | None]) -> Call[list[Document]]:
    """A whole list, page by page."""
    found: list[Document] = []
    after = None
    while True:
        page = yield from document_of("GET", path, query={**query, "after": after, "limit": PAGE})
        found += page[member]
        after = page.get("next")
        if after is None:
            return found


def offset_list(offsets: Mapping[TopicPartition, int]) -> list[Document]:
    """Offsets as the members of a request."""
    checked = {checked_partition(at): offset for at, offset in offsets.items()}
    return [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in checked.items()]


def topic_list(given: str | Sequence[str] | None) -> list[str]:
    """One topic or several, as `topics=` takes them."""
    return [given] if isinstance(given, str) else list(given or ())


def topic_path(name: str) -> str:
    return f"/v1/topics/{path_part(name)}"


def group_path(name: str) -> str:
    return f"/v1/groups/{path_part(name)}"


def node_path(name: str) -> str:
    return f"/v1/nodes/{path_part(name)}"


def path_part(name: str) -> str:
    """A name as one part of a path. Raises ConfigError for what would name another path."""
    if name in ("", ".", ".."):
        raise ConfigError(f"{name!r} cannot name anything")
    return quote(name, safe="")
