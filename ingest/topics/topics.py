"""The life of a topic: created, claimed, changed, deleted. Each is one commit on the topic's table."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from siltlog.infra import names
from siltlog.infra.errors import Refused, SiltlogError, TopicExists, UnknownTopic, problem
from siltlog.infra.security.grant import Grant
from siltlog.infra.settings.topic_config import TopicConfig, Value, validated_partitions
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.admission import Unmade
from siltlog.ingest.log.claim import claim
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers import objects
from siltlog.ingest.topics.altered import Altered, altered, check_changeable
from siltlog.ingest.topics.growth import grow
from siltlog.ingest.topics.room import AllThere, Room, room_of
from siltlog.ingest.topics.state_room import StateRoom

PARTITIONS_DEFAULT = 1
NO_SETTINGS: Mapping[str, Value] = MappingProxyType({})


class Placing(Protocol):
    """Says which node owns a topic that is made here, where several share a root."""

    async def adopt(self, name: str, topic_id: str, node: str) -> None:
        """Returns once a node owns a topic whose table was made: `node`, if it is named and up. Raises Unavailable."""

    def forget(self, name: str, topic_id: str) -> None:
        """The topic was deleted. To say so again does nothing while it is not known what came of it."""

    def want(self, name: str) -> None:
        """Asks for a topic that only this node can go on with; again, as `forget`."""


class Topics:
    """Creates topics, one at a time; changes and deletes them."""

    def __init__(
        self,
        log: Log,
        logger: Logger,
        made_with: Mapping[str, Value] | None = None,
        placing: Placing | None = None,
        default_partitions: int = PARTITIONS_DEFAULT,
        state_room: StateRoom | None = None,
    ) -> None:
        """`made_with` are settings that a topic is given where it is made without them, `default_partitions` how many
        it has where nobody says. With `placing` nobody claims a topic as it is made: who owns it is asked. There are
        no more, and none grows, than `state_room` has room for."""
        self._log = log
        self._logger = logger
        self._made_with = made_with or {}
        self._placing = placing
        self._default_partitions = default_partitions
        self._state_room = state_room
        self._lock = asyncio.Lock()

    async def create(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, Value],
        room: Room | None = None,
        node: str = "",
    ) -> TopicLog:
        """The new topic; `partitions` is None where nobody says. `node` is to own it, where several share the root.

        Raises TopicExists, Refused `invalid_request`, `invalid_config` or `cap_reached`, and what `room` does.
        """
        wrong = names.topic_name_problem(name)
        if wrong is not None:
            raise problem("invalid_request", wrong)
        count = self._default_partitions if partitions is None else partitions
        return await self._create(name, count, config, room, node)

    async def _create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, Value],
        room: Room | None = None,
        node: str = "",
    ) -> TopicLog:
        validated_partitions(partitions)
        own = TopicConfig({**self._made_with, **config})
        if self._placing is not None:
            return await self._place(self._placing, name, partitions, own, room, node)
        async with self._lock:
            topic = self._begun(name)
            if topic is None:
                self._check_free(name)
                # Here topics are made one at a time, so that many at once are not too many.
                self.check_room(name, partitions, room)
                topic = TopicLog(
                    name,
                    await asyncio.to_thread(self._make_table, name, partitions, own),
                    TopicConfig(own.own, self._log.server_config),
                    self._log.wal,
                )
                # Known before it is claimed: the WAL's state must never lack a topic whose epoch the WAL has taken.
                topic.creating("its creation is not finished; create it again")
                self._log.topic_logs.add(topic)
            elif len(topic.partitions) != partitions or topic.config.own != own.own:
                raise _exists(name)
            async with topic.table_lock:
                if topic.epochs:
                    # A claim before this one may have landed without an answer.
                    found = await asyncio.to_thread(topic.table.refresh)
                    ours = {0, *found.released.values(), *topic.epochs}
                    if found.topic_id != topic.topic_id or found.deleted or not ours.issuperset(found.epochs.values()):
                        # Another node's by now: to claim it again would fence that node.
                        self._log.topic_logs.remove(topic)
                        topic.close("deleted", "another node has it")
                        raise _exists(name)
                await claim(self._log, topic, ships=topic.journaled)
                for log in topic.partitions:
                    log.begin(0, 0, 0, topic.epochs[-1])
                topic.opened()
        self._logger.info("topic created", topic=name, partitions=partitions, topic_id=topic.topic_id)
        return topic

    async def _place(
        self, placing: Placing, name: str, partitions: int, own: TopicConfig, room: Room | None, node: str
    ) -> TopicLog:
        """Makes the table, and gives the topic as it is here or, where another node owns it, as it was made."""
        async with self._lock:
            self._check_free(name)
            if name in self._log.topic_logs.elsewhere() and not await asyncio.to_thread(self._is_deleted, name):
                raise _exists(name)
            self.check_room(name, partitions, room)
            table = await asyncio.to_thread(self._make_table, name, partitions, own)
        try:
            await placing.adopt(name, table.topic_id, node)
        except Refused:
            await self._take_back(name, table)
            raise
        self._logger.info("topic created", topic=name, partitions=partitions, topic_id=table.topic_id)
        return self._log.topic_logs.get(name) or TopicLog(
            name, table, TopicConfig(own.own, self._log.server_config), self._log.wal
        )

    def check_room(self, name: str, partitions: int, room: Room | None) -> None:
        """Raises Refused `cap_reached` where there is no room for one more topic, and what `room` does."""
        if room is not None:
            room(partitions)
        if self._state_room is not None:
            self._state_room.check_new(name, partitions)

    async def _take_back(self, name: str, table: TopicTable) -> None:
        """Nobody is to own it: where another was made meanwhile whose name differs only by case, this one never was.

        Raises TopicExists then.
        """
        try:
            self._check_free(name)  # the view that refused it names the other
        except TopicExists:
            with contextlib.suppress(SiltlogError):  # it stays unowned
                await asyncio.to_thread(table.delete, str(uuid.uuid4()), unclaimed=True)
            raise

    def _is_deleted(self, name: str) -> bool:
        """A topic that a view still names."""
        return TopicTable.open(self._log.store, name, self._log.clock).snapshot.deleted

    def _make_table(self, name: str, partitions: int, own: TopicConfig) -> TopicTable:
        """Raises TopicExists unless the name is free, or has just what was asked for and nobody has used it yet."""
        log = self._log
        try:
            return TopicTable.create(
                log.store,
                name,
                topic_id=str(uuid.uuid4()),
                partitions=partitions,
                config=own,
                created_us=log.clock.now_us(),
                clock=log.clock,
            )
        except TopicExists:
            # It may have been made by an attempt that got no answer.
            table = TopicTable.open(log.store, name, log.clock)
            found = table.snapshot
            unused = not found.deleted and not any(found.offsets.values())
            untaken = all(epoch in (0, found.released[partition]) for partition, epoch in found.epochs.items())
            if not (unused and untaken and found.partitions == partitions and found.config.own == own.own):
                raise
            return table

    def _begun(self, name: str) -> TopicLog | None:
        """The topic, when it was made and could not be claimed."""
        return next((topic for topic in self._log.topics() if topic.name == name and topic.state == "creating"), None)

    async def find_or_create(
        self, name: str, partitions: int | None, config: Mapping[str, Value], room: Room | None = None
    ) -> tuple[TopicLog, bool]:
        """The topic and whether it is new; TopicExists when it is there and is not as asked for."""
        try:
            return await self.create(name, partitions, config, room), True
        except TopicExists:
            topic = next((topic for topic in self._log.topics() if topic.name == name), None)
            if topic is None:
                raise
        if partitions not in (None, len(topic.partitions)):
            raise _exists(name, f" with {len(topic.partitions)} partitions, not {partitions}")
        for setting, value in config.items():
            if topic.config.own.get(setting) != value:
                raise _exists(name, f" with another {setting} than {value!r}")
        return topic, False

    def own(self, name: str) -> TopicLog | None:
        """The topic, where it is held by this node."""
        return self._log.topic_logs.get(name)

    def unmade(self, name: str, partitions: int, config: Mapping[str, Value] = NO_SETTINGS) -> Unmade:
        """The topic as `ensure` would make it."""
        begun = self._begun(name)
        if begun is None:
            return Unmade(name, partitions, TopicConfig({**self._made_with, **config}, self._log.server_config))
        return Unmade(name, len(begun.partitions), begun.config)

    async def ensure(
        self, name: str, partitions: int, room: Room | None = None, config: Mapping[str, Value] = NO_SETTINGS
    ) -> TopicLog:
        """The topic, made with `partitions` when it is not there; one whose creation was begun is ended as it began."""
        unmade = self.unmade(name, partitions, config)
        try:
            return await self.create(name, len(unmade.partitions), unmade.config.own, room)
        except TopicExists:
            # There may be one whose name differs by case only.
            with contextlib.suppress(UnknownTopic):
                return self._log.topic(name)
            raise

    async def ensure_system(self, name: str, partitions: int, config: Mapping[str, Value]) -> TopicLog:
        """A topic of the system's, made with `config` when it is not there, and grown to `partitions`."""
        topic = next((topic for topic in self._log.topics() if topic.name == name), None)
        if topic is None or topic.state == "creating":
            begun = self._begun(name)
            try:
                if begun is not None:
                    topic = await self._create(name, len(begun.partitions), begun.config.own)
                else:
                    topic = await self._create(name, partitions, config)
            except TopicExists:
                topic = self._log.topic(name)
        if len(topic.partitions) < partitions:
            topic = await self._alter(name, partitions, {})
        return topic

    async def alter(self, name: str, partitions: int | None, changes: Mapping[str, Any]) -> TopicLog:
        """A merge patch of the topic's settings, and more partitions; all of it in one commit, or nothing.

        Raises UnknownTopic, Refused `invalid_request`, `invalid_config` or `cap_reached`, Unavailable.
        """
        self._log.topic(name)
        check_changeable(name, partitions)
        topic = await self._alter(name, partitions, changes)
        dead = next((one for one in self._log.topics() if one.name == names.dead_letter_topic(name)), None)
        if dead is not None and dead.state == "open" and len(dead.partitions) < len(topic.partitions):
            try:
                await self._alter(dead.name, len(topic.partitions), {})
            except SiltlogError as error:
                self._logger.warning(
                    "dead letters of a topic have fewer partitions until the next one comes",
                    topic=name,
                    reason=error.detail,
                )
        return topic

    def check_change(self, name: str, partitions: int | None, changes: Mapping[str, Any]) -> None:
        """Raises what `alter` would for what is asked for, and changes nothing."""
        topic = self._log.topic(name)
        check_changeable(name, partitions)
        self._check_growth(topic, altered(topic, topic.snapshot, partitions, changes))

    def _check_growth(self, topic: TopicLog, wanted: Altered) -> None:
        more = wanted.partitions - len(topic.partitions)
        if more > 0 and self._state_room is not None:
            self._state_room.check_more(topic.name, more)

    async def _alter(self, name: str, partitions: int | None, changes: Mapping[str, Any]) -> TopicLog:
        topic = self._log.topic(name)
        async with topic.table_lock:
            if topic.state != "unavailable":
                topic.check_open()
            if topic.open_commit:
                raise problem("topic_unavailable", f"topic {name}: whether its last flush landed is not known yet")
            snapshot = await asyncio.to_thread(topic.table.refresh)
            self._log.see_table(topic, snapshot)
            found = altered(topic, snapshot, partitions, changes)
            self._check_growth(topic, found)
            if found.partitions > len(topic.partitions):
                await grow(self._log, topic, found, self._logger)
            elif found.config.own != topic.config.own:
                snapshot = await asyncio.to_thread(
                    topic.table.set_config,
                    found.changed,
                    str(uuid.uuid4()),
                    unset=found.unset,
                    removed_files_ms=found.removed_files_ms,
                )
                self._log.see_table(topic, snapshot)
            else:
                return topic
        self._logger.info("topic changed", topic=name, partitions=found.partitions, config=dict(changes))
        return topic

    async def delete(self, name: str) -> None:
        """Removes the topic's records and its dead letters; its name may be used again. Raises UnknownTopic."""
        topic = self._log.topic(name)
        if topic.system:
            raise problem("forbidden", f"the topic {name} is the system's and cannot be deleted")
        # First: they must not outlive it, and come to a successor of its name.
        await self._delete_dead_letters(name)
        await self._delete(topic)
        try:
            # Whoever gave up a record meanwhile has made them anew.
            await self._delete_dead_letters(name)
        except SiltlogError as error:
            self._logger.warning("dead letters of a deleted topic stay", topic=name, reason=error.detail)

    async def _delete_dead_letters(self, name: str) -> None:
        """Deletes the topic's dead letters, and before them the dead letters of those."""
        dead = next((one for one in self._log.topics() if one.name == names.dead_letter_topic(name)), None)
        if dead is not None:
            await self._delete_dead_letters(dead.name)
            await self._delete(dead)

    async def _delete(self, topic: TopicLog) -> None:
        name = topic.name
        async with topic.table_lock:
            if topic.state == "deleted":
                raise topic.gone()
            with contextlib.suppress(UnknownTopic):  # deleted already, by an attempt that got no answer
                await asyncio.to_thread(topic.table.delete, str(uuid.uuid4()))
            # Gone before those who wait for it are told: they look whether it is there.
            self._log.topic_logs.remove(topic)
            topic.close("deleted", "it was deleted")
            try:
                await asyncio.to_thread(objects.remove, self._log.store, name, topic.topic_id)
            except SiltlogError as error:
                self._logger.warning("producer state of a deleted topic stays", topic=name, reason=error.detail)
        if self._placing is not None:
            self._placing.forget(name, topic.topic_id)
        self._log.group_commit.add_control(wal_state.encode(wal_state.Deleted(topic.topic_id)))
        await self._log.group_commit.commit()
        self._logger.info("topic deleted", topic=name, topic_id=topic.topic_id)

    def _check_free(self, name: str) -> None:
        check_free(name, (known for known in self._log.topic_logs.elsewhere() if known != name))
        check_free(name, (topic.name for topic in self._log.topics()))


class AutoCreate:
    """Makes the topics that are published to and are not there."""

    def __init__(self, topics: Topics, partitions: int, seen: Callable[[], AllThere]) -> None:
        """`seen()` has all topics there are, those of other nodes too."""
        self._topics = topics
        self._partitions = partitions
        self._seen = seen

    def unmade(self, name: str) -> Unmade:
        """The topic as it would be made."""
        return self._topics.unmade(name, self._partitions)

    async def make(self, name: str, grant: Grant, config: Mapping[str, Value] = NO_SETTINGS) -> TopicLog:
        return await self._topics.ensure(name, self._partitions, room_of(self._seen, grant), config)


def check_free(name: str, there: Iterable[str]) -> None:
    """Raises TopicExists where there is a topic of that name, or of one that differs from it only by case."""
    for known in there:
        if known == name:
            raise _exists(name)
        if known.lower() == name.lower():
            raise _differs_by_case(known, name)


def _differs_by_case(known: str, name: str) -> SiltlogError:
    return problem("topic_exists", f"there is a topic {known}, which differs from {name} only by case", topic=name)


def _exists(name: str, how: str = "") -> SiltlogError:
    return problem("topic_exists", f"there is a topic {name} already{how}", topic=name)
