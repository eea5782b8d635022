"""A member of a group as the Python library is one: heartbeats on a thread beside the consumer.

The thread only listens: what it is told waits here until the consumer's own thread takes it, so that partitions come
and go only between two records.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from siltlog.infra.client.calls import path_part
from siltlog.infra.client.core import backoff_ms, json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, SiltlogError, problem

WAIT_MS_MAX = 10_000
WAITS_PER_SESSION = 3
GRACE_MS = 5_000
LEAVE_TIMEOUT_MS = 2_000
_log = logging.getLogger("siltlog.consumer")


@dataclass(frozen=True, slots=True)
class MemberOptions:
    group: str
    topics: Sequence[str]
    auto_offset_reset: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    client_id: str | None


@dataclass(slots=True)
class News:
    """What the group has told since it was last asked."""

    lost: bool = False
    assignment: dict[TopicPartition, int] | None = None
    """Every partition of the member and where to read from; None: as before."""
    error: SiltlogError | None = None


@dataclass(slots=True)
class _Identity:
    """One membership; a new one follows when this is lost."""

    member_id: str = field(default_factory=lambda: str(uuid4()))
    generation: int = 0
    joined: bool = False
    owned: list[dict[str, Any]] | None = None


class GroupMember:
    """`news` is the condition that is notified when there is something to `take`."""

    def __init__(
        self, options: MemberOptions, background: Caller, caller: Caller, clock: Clock, news: threading.Condition
    ) -> None:
        """`background` is for the heartbeats' thread, `caller` for the consumer's own."""
        self.last_error: SiltlogError | None = None
        self.polled = clock.monotonic()
        """When the consumer last asked for a record."""
        self._options = options
        self._background = background
        self._caller = caller
        self._clock = clock
        self._changed = news
        self._path = f"/v1/groups/{path_part(options.group)}"
        self._identity = _Identity()
        self._applied = self._identity
        """Under which the consumer's thread holds its partitions."""
        self._news = News()
        self._stopped = threading.Event()
        self._failing_since: float | None = None
        self._polling = False
        self._left = False
        self._thread = threading.Thread(target=self._run, name="siltlog-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_news(self) -> bool:
        news = self._news
        return news.lost or news.assignment is not None or news.error is not None

    def unjoined_s(self) -> float:
        """For how long joining has failed; 0 for a member."""
        since = self._failing_since
        return 0.0 if since is None or self._identity.joined else self._clock.monotonic() - since

    def take(self) -> News:
        with self._changed:
            news, self._news = self._news, News()
            self._applied = self._identity
            return news

    def poll_begins(self) -> None:
        """The consumer waits for records: it is alive."""
        with self._changed:
            self._polling = True
            if self._left:
                self._left = False
                self._changed.notify_all()

    def poll_ends(self) -> None:
        with self._changed:
            self._polling = False
            self.polled = self._clock.monotonic()

    # --- the consumer's thread ----------------------------------------------------------------------------
    def holds(self, partitions: Collection[TopicPartition], *, released: bool) -> None:
        """From now on the member has these; when some were let go the group is told at once."""
        identity = self._applied
        owned = [{"topic": at.topic, "partition": at.partition} for at in sorted(partitions)]
        with self._changed:
            identity.owned = owned
        if released:
            try:
                self._heartbeat(identity, self._caller, wait_ms=0)
            except SiltlogError as error:
                self._failed(identity, error)

    def commit(self, offsets: Mapping[TopicPartition, int], retry_timeout_ms: int | None = None) -> None:
        """Raises Fenced when the member does not hold one of the partitions; it then begins anew."""
        identity = self._applied
        if identity is not self._identity:
            raise problem("fenced_member", f"this member of {self._options.group} was dropped; it is joining anew")
        document = {
            "member_id": identity.member_id,
            "generation": identity.generation,
            "offsets": [
                {"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in offsets.items()
            ],
        }
        try:
            self._caller.call(json_request("PUT", f"{self._path}/offsets", document), retry_timeout_ms=retry_timeout_ms)
        except Fenced:
            self._lose(identity)
            raise

    def committed(self) -> dict[TopicPartition, int]:
        reply = self._caller.call(json_request("GET", f"{self._path}/offsets")).json()
        return {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in reply["offsets"]}

    def rejoin(self) -> None:
        """Drops everything and joins anew, as when the group had dropped this member."""
        identity = self._identity
        self._lose(identity)
        self._say_goodbye(identity)

    def leave(self) -> None:
        """Ends the membership; the group learns of it at once where it can be reached."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._say_goodbye(self._identity)

    def _say_goodbye(self, identity: _Identity) -> None:
        try:
            self._caller.call(
                json_request("DELETE", f"{self._path}/members/{identity.member_id}"),
                retry_timeout_ms=LEAVE_TIMEOUT_MS,
            )
        except SiltlogError as error:
            _log.warning("group %s was not told that this member left: %s", self._options.group, error)

    # --- the heartbeat's thread ---------------------------------------------------------------------------
    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            identity = self._identity
            if self._overdue():
                self._step_out(identity)
                continue
            try:
                self._heartbeat(identity, self._background, wait_ms=self._wait_ms() if identity.joined else 0)
                failures = 0
            except SiltlogError as error:
                self._failed(identity, error)
                if not isinstance(error, Fenced):
                    self._stopped.wait(backoff_ms(failures, 0.5, error.retry_after_ms) / 1000)
                    failures += 1
            except Exception as error:
                _log.exception("the heartbeat of group %s failed", self._options.group)
                self._tell(News(error=SiltlogError(f"the heartbeat failed: {error!r}")))
                return

    def _wait_ms(self) -> int:
        return min(
            WAIT_MS_MAX,
            self._options.session_timeout_ms // WAITS_PER_SESSION,
            max(1, self._options.max_poll_interval_ms // 2),
        )

    def _heartbeat(self, identity: _Identity, caller: Caller, *, wait_ms: int) -> None:
        """Joins or stays; takes what the group says unless something newer is known."""
        with self._changed:
            document: dict[str, Any] = {"generation": identity.generation, "wait_ms": wait_ms}
            if identity.owned is not None:
                document["owned"] = identity.owned
        if not identity.joined:
            document |= {
                "topics": list(self._options.topics),
                "session_timeout_ms": self._options.session_timeout_ms,
                "rebalance_timeout_ms": self._options.rebalance_timeout_ms,
                "auto_offset_reset": self._options.auto_offset_reset,
            }
            if self._options.client_id:
                document["client_id"] = self._options.client_id
        path = f"{self._path}/members/{identity.member_id}"
        request = json_request("PUT", path, document, read_timeout_ms=wait_ms + GRACE_MS)
        reply = caller.call(request, retry_timeout_ms=0).json()
        with self._changed:
            self._failing_since = None
            if identity is not self._identity or reply["generation"] < identity.generation:
                return
            identity.generation = reply["generation"]
            identity.joined = True
            if reply["assignment"] is not None:
                self._news.assignment = {
                    TopicPartition(one["topic"], one["partition"]): one["offset"] for one in reply["assignment"]
                }
            self._changed.notify_all()

    def _failed(self, identity: _Identity, error: SiltlogError) -> None:
        if isinstance(error, Fenced):
            self._lose(identity)
        elif error.retryable == "no":
            self._tell(News(error=error))
        else:
            self.last_error = error
            self._failing_since = self._failing_since or self._clock.monotonic()

    def _lose(self, identity: _Identity) -> None:
        """The group has dropped this member: everything it held is another's, and it joins anew under a new id."""
        with self._changed:
            if identity is self._identity:
                self._identity = _Identity()
                self._news = News(lost=True)
                self._changed.notify_all()

    def _tell(self, news: News) -> None:
        with self._changed:
            self._news.error = news.error
            self._changed.notify_all()

    def _overdue(self) -> bool:
        with self._changed:
            waited_ms = (self._clock.monotonic() - self.polled) * 1000
            return not self._polling and waited_ms > self._options.max_poll_interval_ms

    def _step_out(self, identity: _Identity) -> None:
        """Nothing was asked for in `max_poll_interval_ms`: others get the partitions until the consumer is back."""
        _log.warning(
            "nothing was polled for %s ms: leaving group %s until the next poll",
            self._options.max_poll_interval_ms,
            self._options.group,
        )
        self._say_goodbye(identity)
        with self._changed:
            self._identity = _Identity()
            self._news = News(lost=True)
            self._left = not self._polling
            while self._left and not self._stopped.is_set():
                self._changed.wait()
