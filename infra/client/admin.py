"""Topics, groups and the cluster, from Python."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from siltlog.infra.client.core import Endpoints, Request, Response, json_request
from siltlog.infra.client.record import TimeLike, TopicPartition, time_us
from siltlog.infra.client.transport import Caller, HttpTransport, Transport
from siltlog.infra.clock import Clock, SystemClock, format_us
from siltlog.infra.errors import ConfigError

PAGE = 1_000


class Admin:
    """Replies are the documents of the HTTP API. Safe from several threads.

    A call is tried again for `retry_timeout_ms` while the server cannot be reached or says that it will pass.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        retry_timeout_ms: int = 10_000,
        clock: Clock | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._transport = transport or HttpTransport()
        self._caller = Caller(
            Endpoints(url), self._transport, clock or SystemClock(), retry_timeout_ms=retry_timeout_ms
        )

    # --- topics -------------------------------------------------------------------------------------------
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, int | str] | None = None,
        exist_ok: bool = False,
    ) -> dict[str, Any]:
        """The new topic. Raises TopicExists; with `exist_ok` only where the existing one has other partitions."""
        document = {"partitions": partitions, "config": dict(config or {})}
        if exist_ok:
            return self._document(json_request("PUT", _topic(name), document))
        return self._document(json_request("POST", "/v1/topics", {"name": name, **document}))

    def topics(self, prefix: str | None = None) -> list[dict[str, Any]]:
        return list(self._pages("/v1/topics", "topics", prefix))

    def topic(self, name: str) -> dict[str, Any]:
        """Raises UnknownTopic."""
        return self._document(json_request("GET", _topic(name)))

    def alter_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, int | str | None] | None = None
    ) -> dict[str, Any]:
        """The topic as it is from now on. None in `config` puts a setting back; partitions only grow.

        Settings that are not named stay as they are. Raises UnknownTopic, ConfigError, Refused.
        """
        document: dict[str, Any] = {} if partitions is None else {"partitions": partitions}
        if config:
            document["config"] = dict(config)
        return self._document(json_request("PATCH", _topic(name), document))

    def delete_topic(self, name: str) -> None:
        """Raises UnknownTopic."""
        self._call(json_request("DELETE", _topic(name)))

    def offsets(self, topic: str, timestamp: TimeLike | None = None) -> list[dict[str, Any]]:
        """Per partition its bounds and, with `timestamp`, the lowest offset at or after it."""
        when = None if timestamp is None else format_us(time_us(timestamp))
        reply = self._document(json_request("GET", f"{_topic(topic)}/offsets", query={"timestamp": when}))
        partitions: list[dict[str, Any]] = reply["partitions"]
        return partitions

    # --- groups -------------------------------------------------------------------------------------------
    def groups(self, prefix: str | None = None) -> list[dict[str, Any]]:
        return list(self._pages("/v1/groups", "groups", prefix))

    def group(self, group: str) -> dict[str, Any]:
        return self._document(json_request("GET", _group(group)))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The next offset to read of every partition the group has committed."""
        reply = self._document(json_request("GET", f"{_group(group)}/offsets"))
        return {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in reply["offsets"]}

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Only while the group has no members."""
        listed = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in offsets.items()]
        self._call(json_request("PUT", f"{_group(group)}/offsets", {"offsets": listed}))

    def delete_group(self, group: str) -> None:
        self._call(json_request("DELETE", _group(group)))

    # --- the rest -----------------------------------------------------------------------------------------
    def cluster(self) -> dict[str, Any]:
        return self._document(json_request("GET", "/v1/cluster"))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, request: Request) -> Response:
        return self._caller.call(request)

    def _document(self, request: Request) -> dict[str, Any]:
        document: dict[str, Any] = self._call(request).json()
        return document

    def _pages(self, path: str, member: str, prefix: str | None) -> Iterator[dict[str, Any]]:
        after = None
        while True:
            query = {"prefix": prefix, "after": after, "limit": PAGE}
            page = self._document(json_request("GET", path, query=query))
            yield from page[member]
            after = page.get("next")
            if after is None:
                return


def _topic(name: str) -> str:
    return f"/v1/topics/{path_part(name)}"


def _group(name: str) -> str:
    return f"/v1/groups/{path_part(name)}"


def path_part(name: str) -> str:
    """A name as one part of a path. Raises ConfigError for what would name another path."""
    if name in ("", ".", ".."):
        raise ConfigError(f"{name!r} cannot name anything")
    return quote(name, safe="")
