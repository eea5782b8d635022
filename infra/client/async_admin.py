"""Topics, groups and the cluster, from asyncio."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

from siltlog.infra.client import calls, job_calls
from siltlog.infra.client.async_transport import AsyncCaller, AsyncTransport
from siltlog.infra.client.calls import Call, Document
from siltlog.infra.client.core import READ_TIMEOUT_MS
from siltlog.infra.client.credentials.async_authorized import async_open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.keywords import (
    ConnectionKeywords,
    check_known,
    check_timeout,
    connect_timeout_of,
    credentials_of,
    spelled_out,
)
from siltlog.infra.client.record import TimeLike, TopicPartition
from siltlog.infra.clock import Clock, SystemClock

T = TypeVar("T")


class AsyncAdmin:
    """Replies are the documents of the HTTP API. Shared by the tasks of one event loop.

    A call is tried again for `retry_timeout_ms` while the server cannot be reached or says that it will pass. An answer
    may take `request_timeout_ms`, but for calls that are known to take longer.
    """

    @spelled_out(ConnectionKeywords, Credentials)
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        retry_timeout_ms: int = 10_000,
        request_timeout_ms: int = READ_TIMEOUT_MS,
        clock: Clock | None = None,
        transport: AsyncTransport | None = None,
        **connection: Unpack[ConnectionKeywords],
    ) -> None:
        """Raises ConfigError when an argument is not valid. Connects at the first call."""
        check_known("AsyncAdmin", connection, ConnectionKeywords)
        check_timeout("request_timeout_ms", request_timeout_ms)
        endpoints = Endpoints(url)
        clock = clock or SystemClock()
        self._transport = async_open_transport(
            endpoints, clock, credentials_of(connection), transport, connect_timeout_of(connection)
        )
        self._caller = AsyncCaller(
            endpoints,
            self._transport,
            clock,
            retry_timeout_ms=retry_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, int | str] | None = None,
        exist_ok: bool = False,
    ) -> Document:
        """The new topic, with as many `partitions` as the server gives where that is None. Raises TopicExists; with
        `exist_ok` only where the existing one has other partitions than were asked for."""
        return await self._run(calls.create_topic(name, partitions, config, exist_ok))

    async def topics(
        self, prefix: str | None = None, *, sort: calls.TopicSort | None = None, order: calls.Order | None = None
    ) -> list[Document]:
        """All topics, by name, or ranked by `sort` as the server knows them now: the most first, unless `order` says
        otherwise."""
        return await self._run(calls.topics(prefix, sort, order))

    async def topic(self, name: str) -> Document:
        """Raises UnknownTopic."""
        return await self._run(calls.topic(name))

    async def alter_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, int | str | None] | None = None
    ) -> Document:
        """The topic as it is from now on. None in `config` puts a setting back; partitions only grow.

        Settings that are not named stay as they are. Raises UnknownTopic, ConfigError, Refused.
        """
        return await self._run(calls.alter_topic(name, partitions, config))

    async def delete_topic(self, name: str) -> None:
        """Raises UnknownTopic."""
        await self._run(calls.delete_topic(name))

    async def offsets(self, topic: str, timestamp: TimeLike | None = None) -> list[Document]:
        """Gives each partition's bounds and, with `timestamp`, the lowest offset at or after it."""
        reply = await self._run(calls.offsets(topic, timestamp))
        partitions: list[Document] = reply["partitions"]
        return partitions

    async def delete_records(self, topic: str, partition: int, before_offset: int | Literal["latest"]) -> Document:
        """Deletes what is below an offset ("latest": all there is) for good; the bounds as they are after it.

        A log start that is there already stays. Raises UnknownTopic, OffsetOutOfRange above the high watermark.
        """
        return await self._run(calls.delete_records(topic, partition, before_offset))

    async def replay_dead_letters(
        self, topic: str, replay_id: str, offsets: Iterable[tuple[int, int]] | None = None
    ) -> Document:
        """Publishes the dead letters of a topic, or those at (partition, offset), to it again, as they were.

        Each once for a `replay_id`, which stands for one call: repeated with the same it brings what is missing. Gives
        how many were `replayed`, and how many `duplicates` had gone back before.
        """
        return await self._run(calls.replay_dead_letters(topic, replay_id, offsets))

    async def dead_letters(
        self, topic: str, *, group: str | None = None, after: str | None = None, limit: int = 100
    ) -> Document:
        """One page of the dead letters of a topic, the newest first, of one group or of all.

        Gives `dead_letters`, each a record with what is said about it in `dead_letter`; the `count` of all there are;
        and `next`, to be given as `after` for the next page: None where nothing follows. A page may have fewer than
        `limit` and be followed by others.
        """
        return await self._run(calls.dead_letters(topic, group, after, limit))

    async def discard_dead_letters(
        self,
        topic: str,
        offsets: Iterable[tuple[int, int]] = (),
        *,
        ranges: Iterable[tuple[int, int, int]] = (),
        reason: str = "",
    ) -> Document:
        """Discards dead letters of a topic for good: those at (partition, offset), and all that there are from
        (partition, first offset, last offset) on up to that, both included.

        They are listed and brought back no more. Gives how many were `discarded`, how many `duplicates` had been
        before, and where the named `partitions` of the dead letters begin now. Where an offset has no dead letter
        nothing is done.
        """
        return await self._run(calls.discard_dead_letters(topic, offsets, ranges, reason))

    async def groups(
        self,
        prefix: str | None = None,
        *,
        topic: str | None = None,
        sort: calls.GroupSort | None = None,
        order: calls.Order | None = None,
    ) -> list[Document]:
        """All groups, or those that have committed offsets of `topic`; by name, or ranked by `sort`, the most first,
        unless `order` says otherwise."""
        return await self._run(calls.groups(prefix, topic, sort, order))

    async def group(self, group: str) -> Document:
        return await self._run(calls.group(group))

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The next offset to read of every partition the group has committed."""
        return await self._run(calls.group_offsets(group))

    async def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Only while the group has no members."""
        await self._run(calls.set_group_offsets(group, offsets))

    async def reset_group(
        self,
        group: str,
        to: str,
        *,
        topics: str | Sequence[str] | None = None,
        partitions: Sequence[TopicPartition] | None = None,
        timestamp: TimeLike | None = None,
        offset: int | None = None,
        shift: int | None = None,
        dry_run: bool = False,
    ) -> list[Document]:
        """Moves where the group goes on, in every partition of `topics` or in `partitions`; only without members.

        `to` is `earliest`, `latest`, or the name of the argument that says more: `timestamp`, `offset`, `shift` (so
        many records on, or back). Offsets are brought within what the log has. Gives topic, partition, `before` (None:
        no offset) and `after` of each; with `dry_run` that is all.
        """
        return await self._run(calls.reset_group(group, to, topics, partitions, timestamp, offset, shift, dry_run))

    async def delete_group(self, group: str) -> None:
        await self._run(calls.delete_group(group))

    async def jobs(self, job: str | None = None, limit: int = 100) -> list[Document]:
        """The newest runs of jobs, or of one job: what each did, newest first."""
        return await self._run(job_calls.jobs(job, limit))

    async def schedule(self) -> Document:
        """Says who runs the schedule, and when each job runs next."""
        return await self._run(job_calls.schedule())

    async def begin_job(self, job: str) -> Document:
        """Runs a job of the schedule now, where that is run, and gives its `run_id`. Raises Refused `job_running`, and
        `job_unavailable` where it is off or cannot be run there."""
        return await self._run(job_calls.begin_job(job))

    async def stop_job(self, job: str, run_id: str) -> Document:
        """Stops a run of a job of the schedule; gives its `outcome` once it has ended. Raises Refused `run_ended` for
        one that had, `unknown_run`."""
        return await self._run(job_calls.stop_job(job, run_id))

    async def cluster(self) -> Document:
        return await self._run(calls.cluster())

    async def nodes(self) -> list[Document]:
        """The nodes that share the root, with what each is at; the one that is asked, where there is no cluster."""
        reply = await self._run(calls.nodes())
        nodes: list[Document] = reply["nodes"]
        return nodes

    async def config(self) -> Document:
        """The settings of the node that answers: what holds, where each comes from, whether it takes a restart."""
        return await self._run(calls.config())

    async def change_config(self, changes: Mapping[str, int | str | None], version: str | None = None) -> Document:
        """Changes settings of the node that answers, all or none, and gives what holds then; None takes one back.
        With `version` only of that. Raises ConfigError for what may not be, Refused for what cannot change."""
        return await self._run(calls.change_config(changes, version))

    async def drain_node(self, node: str) -> None:
        """Has the node hand over its topics; it gets no others until its next start."""
        await self._run(calls.drain_node(node))

    async def drain(self) -> Document:
        """Has the server that is asked take no publishes, or hand over its topics in a cluster; says how far it is."""
        return await self._run(calls.drain())

    async def drain_state(self) -> Document:
        """Says whether the server that is asked is drained, and what is left to do."""
        return await self._run(calls.drain_state())

    async def end_drain(self) -> Document:
        """Has the server that is asked take publishes again."""
        return await self._run(calls.end_drain())

    async def profile(self, kind: calls.ProfileKind, seconds: float = 10.0) -> Document:
        """Asks what the server is at, for so long: `cpu` in speedscope's format. Of a server with `SILT_DEBUG=on`."""
        return await self._run(calls.profile(kind, seconds))

    async def remove_node(self, node: str) -> None:
        """Takes a node that is away out of the list."""
        await self._run(calls.remove_node(node))

    async def move_topic(self, topic: str, node: str | None = None) -> Document:
        """Has another node own the topic: `node`, or that of the others with the fewest. Raises UnknownTopic."""
        return await self._run(calls.move_topic(topic, node))

    async def abandon_topic(self, topic: str) -> Document:
        """Gives up what only the disk of a lost node has of the topic, for good. Raises UnknownTopic, and Refused where
        it waits for no such node."""
        return await self._run(calls.abandon_topic(topic))

    async def balance(self, dry_run: bool = False) -> list[Document]:
        """Has topics move until all nodes own as many; gives those that move. With `dry_run` that is all."""
        reply = await self._run(calls.balance(dry_run))
        moves: list[Document] = reply["moves"]
        return moves

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        return await self._caller.run(call)
