"""The log of one table: what one process knows of it, how commits become part of it, when a checkpoint is due.

Delta compares names of app transactions, never their numbers. So a commit may only become the version after the
snapshot it was checked on; one that lost that race is checked again. Only a rewrite is made at its plan's version.
Each commit is read again as a part of the log before it counts, because the log may have been cleaned meanwhile.
"""

import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from siltlog.infra import delta_names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, Unavailable, problem
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.s3_denied import write_was_denied
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.clean_up import clean_up, remove_strays
from siltlog.infra.table.delta import Make, commit_actions, open_handle, translated
from siltlog.infra.table.entries import (
    Entry,
    Torn,
    checkpoint_path,
    cleaned_below,
    damaged,
    entry_path,
    goes_on,
    log_folder,
    read_entries,
    read_entry,
)
from siltlog.infra.table.opening import Loaded, load
from siltlog.infra.table.snapshot import TRUE, TableSnapshot

NEWEST = 30
"""A reader that has just looked up the newest one must still find it."""
SPARSE_VERSIONS = 1_000
"""Older checkpoints stay, one in so many versions: reading an old version never replays more entries."""
COMMITS_MIN = 20
"""A checkpoint costs more than so few commits are slowed down by each other, unless their entries are large."""
LARGE_BYTES = 4 * 1024 * 1024
COMMITS_MAX = SPARSE_VERSIONS
SECONDS_MAX = 6 * 3_600.0
"""The log is cleaned up to a checkpoint, so a topic that gets a little has one now and then, too."""
Outcome = Literal["landed", "not_landed", "past", "unknown"]
"""The first three are for good: "past" is a commit of which the log, cleaned since, does not tell any more whether it
landed. It cannot land now; the table's own numbers say what came of it."""
CLEAN_UP_S = 1_800.0
RACE_S = 30.0
"""How long a commit goes on losing races before it is given up for now. One that is rare and slow, a delete beside a
flusher, may lose many of them in a row."""
_REMOTE_ATTEMPTS_MAX = 3
_BACKOFF_S = 0.2


def checkpoint_is_due(commits: int, entry_bytes: int, seconds: float, checkpoint_bytes: int) -> bool:
    """`commits` with `entry_bytes` of log entries came in `seconds` after a checkpoint of `checkpoint_bytes`.

    Each commit reads all entries after the newest checkpoint once more, so half of `commits * entry_bytes` was read
    that a checkpoint would have spared. A byte of it costs about twice as much as one of a checkpoint that is written
    and read. Once one has cost as much as the other the next is due: checkpoints then cost no more than the commits
    themselves, however long they are, and both together no more than twice what they would with the best choice.
    """
    if commits <= 0:
        return False
    if commits >= COMMITS_MAX or seconds >= SECONDS_MAX:
        return True
    read_bytes = commits * entry_bytes
    return read_bytes >= checkpoint_bytes and (commits >= COMMITS_MIN or read_bytes >= LARGE_BYTES)


class Checkpoints:
    """The checkpoints of one writer; those from before a restart go with the log entries of their time."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque()
        self._sparse = -1

    def written(self, version: int) -> list[int]:
        """Takes note of a checkpoint; the versions of those that need not be kept any more."""
        self._newest.append(version)
        gone = []
        while len(self._newest) > NEWEST:
            older = self._newest.popleft()
            if older // SPARSE_VERSIONS == self._sparse:
                gone.append(older)
            self._sparse = older // SPARSE_VERSIONS
        return gone


class TableLog:
    """A topic's log and its newest known snapshot. Used by one thread at a time; `snapshot` may be read by any."""

    def __init__(self, store: ObjectStore, topic: str, clock: Clock, loaded: Loaded) -> None:
        self.topic = topic
        self.topic_id = loaded.snapshot.topic_id
        self.snapshot = loaded.snapshot
        self._store = store
        self._clock = clock
        self._handle = loaded.handle
        self._checkpoint_version = loaded.checkpoint_version
        self._checkpoint_bytes = loaded.checkpoint_bytes
        self._checkpoint_s = clock.monotonic()
        self._entry_bytes = _bytes_of(loaded.entries)
        """The bytes of the log after the newest checkpoint."""
        self._checkpoints = Checkpoints()
        self._clean_again_s = -math.inf

    def refresh(self) -> TableSnapshot:
        """Takes in what was committed since; raises Unavailable when the log cannot be read now."""
        self._advance()
        return self.snapshot

    def _advance(self) -> Sequence[Entry]:
        """Does what `refresh` does, and gives the newest entries: all committed since, unless the log was cleaned."""
        try:
            self._handle.update()
        except Exception as error:
            raise translated(self._store, self.topic, error) from error
        version = self._handle.version
        if version < self.snapshot.version:
            raise damaged(
                self.topic,
                log_folder(self.topic),
                f"it ends at version {version}, below {self.snapshot.version}, which was read before",
            )
        return self._take_in(version) if version > self.snapshot.version else ()

    def _take_in(self, version: int) -> Sequence[Entry]:
        before = self.snapshot.version
        try:
            entries = read_entries(self._store, self.topic, range(before + 1, version + 1))
            whole = goes_on(self._store, self.topic, before)
        except FileNotFoundError:
            whole = False
        except Torn as torn:
            raise damaged(self.topic, str(torn), "it is cut short") from torn
        if not whole or any(entry.undescribed for entry in entries):
            # Cleaned since: another process wrote a checkpoint after them. Or the whole log says what another program's
            # files are, and whether they are still there.
            return self._reopen()
        # Whatever is built on these entries must not outlive them, whoever wrote them.
        self._store.sync(entry_path(self.topic, entry.version) for entry in entries)
        self.snapshot = self.snapshot.after(entries)
        self._entry_bytes += _bytes_of(entries)
        return entries

    def _reopen(self) -> Sequence[Entry]:
        """The entries after the newest checkpoint."""
        loaded = load(self._store, self.topic)
        if loaded.checkpoint_version != self._checkpoint_version:
            self._checkpoint_s = self._clock.monotonic()
        self._handle, self.snapshot, self._checkpoint_version, self._checkpoint_bytes = loaded[:4]
        self._entry_bytes = _bytes_of(loaded.entries)
        return loaded.entries

    def commit(
        self,
        commit_id: str,
        checked: Callable[[TableSnapshot], Make],
        *,
        over_deleted: bool = False,
    ) -> TableSnapshot:
        """Commits what `checked` says of the present snapshot, anew after every race that is lost."""
        failures = 0
        give_up_s = self._clock.monotonic() + RACE_S
        while self._clock.monotonic() < give_up_s:
            if self._handle.version != self.snapshot.version:
                self.refresh()
            version = self.snapshot.version
            if not over_deleted and (self.snapshot.deleted or self.snapshot.topic_id != self.topic_id):
                raise self._gone()
            make = checked(self.snapshot)
            try:
                self._handle.commit(make)
                if self._counts(commit_id, version):
                    return self.snapshot
            except Exception as error:
                # Of an attempt before it a request may still be under way.
                if not failures and write_was_denied(error):
                    raise translated(self._store, self.topic, error) from error
                if self._after_failure(commit_id, version, error):
                    return self.snapshot
                if self.snapshot.version == version:
                    failures += 1
                    if failures == _REMOTE_ATTEMPTS_MAX:
                        raise self._unknown(commit_id, version, error) from error
                    self._clock.sleep(_BACKOFF_S * failures)
        raise Unavailable(
            f"topic {self.topic} is being changed by others all the time; for {RACE_S:.0f} s each commit lost the race",
            error_code="topic_unavailable",
            retry_after_ms=1000,
        )

    def _counts(self, commit_id: str, after_version: int) -> bool:
        """Whether a commit that was made without an error is part of the log; one that is not is taken away again."""
        if any(entry.commit_id == commit_id for entry in self._advance()):
            return True
        told = self._told(commit_id, after_version)
        if told == "past" and not remove_strays(self._store, self.topic):
            raise FileNotFoundError(entry_path(self.topic, after_version + 1))
        return told == "landed"

    def _after_failure(self, commit_id: str, version: int, error: Exception) -> bool:
        """True when the commit landed all the same, False when it may be made again."""
        try:
            told = self._told(commit_id, version)
        except (SiltlogError, FileNotFoundError, Torn) as unreadable:
            raise self._unknown(commit_id, version, error) from unreadable
        if told == "past":
            raise self._unknown(commit_id, version, error) from error
        landed = told == "landed"
        if not landed and self.snapshot.version == version and isinstance(self._store, LocalStore):
            raise translated(self._store, self.topic, error) from error
        return landed

    def planned_handle(self, plan_version: int) -> DeltaTable:
        """Opens a handle for `commit_planned`, at the version that a plan read.

        Raises UnknownTopic where the topic was deleted, Fenced where the log does not have that version any more.
        """
        try:
            handle = open_handle(self._store, self.topic, plan_version)
        except SiltlogError as error:
            if cleaned_below(self._store, self.topic) <= plan_version:
                raise
            raise self._overtaken(plan_version, "the log was cleaned since") from error
        configuration = handle.metadata().configuration
        if (
            configuration.get(delta_names.PROPERTY_TOPIC_ID) != self.topic_id
            or configuration.get(delta_names.PROPERTY_DELETED) == TRUE
        ):
            raise self._gone()
        return handle

    def commit_planned(
        self,
        handle: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        commit_id: str,
    ) -> TableSnapshot:
        """Commits on a handle that stays at its plan's version. Raises Fenced when others changed the same since."""
        plan_version = handle.version()
        try:
            commit_actions(handle, actions, transactions, commit_id, retries=None)
        except Exception as error:
            if write_was_denied(error):
                raise translated(self._store, self.topic, error) from error
            outcome = self.outcome(commit_id, plan_version)
            if outcome == "unknown":
                raise self._unknown(commit_id, plan_version, error) from error
            if outcome == "not_landed" and not isinstance(error, CommitFailedError):
                raise translated(self._store, self.topic, error) from error
            if outcome != "landed":
                raise self._overtaken(plan_version, str(error)) from error
            return self.refresh()
        try:
            counts = self._counts(commit_id, plan_version)
        except (SiltlogError, FileNotFoundError, Torn) as unreadable:
            raise self._unknown(commit_id, plan_version, unreadable) from unreadable
        if not counts:
            raise self._overtaken(plan_version, "the log was cleaned since")
        return self.snapshot

    def outcome(self, commit_id: str, after_version: int) -> Outcome:
        """Whether the commit, made on a handle at `after_version`, landed; "unknown" while that cannot be told."""
        try:
            told = self._told(commit_id, after_version)
            if told == "landed" or isinstance(self._store, LocalStore):
                return told
            # A request may still be under way to a remote store: with the next version taken it cannot land.
            self._take_next_version()
            return self._told(commit_id, after_version)
        except (SiltlogError, FileNotFoundError, Torn):
            return "unknown"

    def _told(self, commit_id: str, after_version: int) -> Outcome:
        """Looks for the commit in the log as it is now; raises when an entry that may be it cannot be read."""
        if self.refresh().version < after_version:
            raise damaged(self.topic, log_folder(self.topic), f"it ends below version {after_version}")
        versions = range(after_version + 1, self.snapshot.version + 1)
        try:
            landed = any(read_entry(self._store, self.topic, version).commit_id == commit_id for version in versions)
        except FileNotFoundError:
            if goes_on(self._store, self.topic, after_version):
                raise
        else:
            if goes_on(self._store, self.topic, after_version):
                return "landed" if landed else "not_landed"
        return "landed" if any(entry.commit_id == commit_id for entry in self._reopen()) else "past"

    def _take_next_version(self) -> None:
        try:
            self._handle.commit(lambda delta: commit_actions(delta, [], {}, str(uuid.uuid4())))
        except Exception as error:
            version = self.snapshot.version
            if self.refresh().version == version:
                raise translated(self._store, self.topic, error) from error

    def maintain(self) -> None:
        """A checkpoint when one is due; then, and only then, log entries past their period go."""
        commits = self._handle.version - self._checkpoint_version
        now_s = self._clock.monotonic()
        if not checkpoint_is_due(commits, self._entry_bytes, now_s - self._checkpoint_s, self._checkpoint_bytes):
            return
        self.checkpoint()
        # A log of a day is long to look through for the few entries that expired since the last checkpoint.
        if now_s >= self._clean_again_s:
            self._clean_again_s = now_s + CLEAN_UP_S
            self.clean_log(self._clock.now_us() // 1000)

    def checkpoint(self) -> None:
        """Writes one of the newest version that was read, unless others have gone far beyond it."""
        version = self._handle.version
        if not goes_on(self._store, self.topic, version):
            self._reopen()
            return
        try:
            self._handle.checkpoint()
        except Exception as error:
            raise translated(self._store, self.topic, error) from error
        self._reopen()
        for older in self._checkpoints.written(version):
            self._store.delete(checkpoint_path(self.topic, older))

    def clean_log(self, now_ms: int) -> None:
        """Removes log entries that are past their period then and lie below a checkpoint."""
        clean_up(self._store, self.topic, now_ms)

    def _overtaken(self, plan_version: int, reason: str) -> Fenced:
        return Fenced(
            f"topic {self.topic} changed after version {plan_version}, which this rewrite was planned on ({reason}); "
            "plan it anew",
            error_code="topic_unavailable",
            members={"topic": self.topic},
        )

    def _gone(self) -> SiltlogError:
        return problem("unknown_topic", f"topic {self.topic} was deleted", topic=self.topic, topic_id=self.topic_id)

    def _unknown(self, commit_id: str, version: int, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether commit {commit_id} after version {version} of topic {self.topic} landed is not known: {error}",
            members={"topic": self.topic, "commit_id": commit_id, "after_version": version},
        )


def _bytes_of(entries: Sequence[Entry]) -> int:
    return sum(entry.size_bytes for entry in entries)
