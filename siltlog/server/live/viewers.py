"""Makes snapshots for all who watch: one a second, one for who comes, and none while nobody watches."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import Access, Grant
from siltlog.infra.telemetry import Logger
from siltlog.server.live.answers import Kind
from siltlog.server.live.snapshot import ALL, Seen, Sees, Snapshot

PERIOD_SECONDS = 1.0
SOON_SECONDS = 0.2
"""A viewer who comes is shown something at once, but so long after the last: many who come together share one."""
CROWDED_RETRY_MS = 10_000
_encode = msgspec.json.Encoder().encode

Encodings = Mapping[tuple[Sees, Kind], bytes]
States = Mapping[str, tuple[str, int]]


class Viewer:
    """One who watches. What he has not taken when the next comes he never gets, and is told how often that was."""

    def __init__(self, kinds: Sequence[Kind], grant: Grant, wake: Callable[[], None]) -> None:
        self.kinds = kinds
        self.subject = None if grant.identity is None else grant.identity.subject
        self._wake = wake
        self._newest: bytes | None = None
        self._missed = 0
        """Snapshots that were replaced since he took one."""

    def offer(self, text: bytes) -> bool:
        """Whether one that he has not taken is replaced."""
        missed = self._newest is not None
        self._missed += missed
        self._newest = text
        self._wake()
        return missed

    def forget(self) -> None:
        """What he was to be shown was made by rights that hold no more."""
        self._newest = None

    def take(self) -> bytes | None:
        """Gives the newest snapshot once, behind how many before it he missed; None where it was taken."""
        text, self._newest = self._newest, None
        if text is None or not self._missed:
            return text
        missed, self._missed = self._missed, 0
        return b'event: missed\ndata: {"snapshots":%d}\n\n%b' % (missed, text)


class _Wanted(NamedTuple):
    """The kinds that each subject watches, by one version of who may do what."""

    subjects: Mapping[Subject | None, frozenset[Kind]]
    version: int


class Viewers:
    """Used on one event loop."""

    def __init__(
        self,
        snapshot: Callable[[frozenset[Kind]], Awaitable[Snapshot]],
        states: Callable[[Sequence[str]], Awaitable[States]],
        access: Access | None,
        clock: Clock,
        logger: Logger,
        *,
        viewers_max: int,
    ) -> None:
        """`snapshot(kinds)` makes one for events of some kinds; `states(groups)` has (state, members) of groups."""
        self._made = 0
        self._encoded = 0
        self._missed = 0
        self._snapshot = snapshot
        self._states = states
        self._access = access
        self._clock = clock
        self._logger = logger
        self._max = viewers_max
        self._viewers: dict[Viewer, None] = {}
        self._decided: dict[Subject, tuple[int, dict[tuple[str, str], bool]]] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._came = asyncio.Event()

    def show(self, metrics: Metrics) -> None:
        metrics.gauge(catalogue.LIVE_VIEWERS, lambda: len(self._viewers))
        metrics.counts(catalogue.LIVE_SNAPSHOTS, lambda: [((), self._made)])
        metrics.counts(catalogue.LIVE_MISSED, lambda: [((), self._missed)])
        metrics.counts(catalogue.LIVE_ENCODED, lambda: [((), self._encoded)])

    def check_room(self) -> None:
        """Raises Unavailable `overloaded` where one more would be too many."""
        if len(self._viewers) >= self._max:
            raise problem(
                "overloaded",
                f"{self._max} pages watch this server, and no more may (SILT_UI_VIEWERS_MAX); read /v1/topics, "
                "/v1/groups and /readyz now and then, or come again",
                retry_after_ms=CROWDED_RETRY_MS,
            )

    @contextmanager
    def watching(self, kinds: Sequence[Kind], grant: Grant, wake: Callable[[], None]) -> Iterator[Viewer]:
        """Raises as `check_room`."""
        self.check_room()
        viewer = Viewer(kinds, grant, wake)
        self._viewers[viewer] = None
        self._came.set()
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick_on())
        forget = grant.when_changed(viewer.forget)
        try:
            yield viewer
        finally:
            forget()
            del self._viewers[viewer]

    def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    async def _tick_on(self) -> None:
        """Makes snapshots until nobody watches."""
        while self._viewers:
            began = self._clock.monotonic()
            self._came.clear()
            try:
                await self._tick()
            except SiltlogError as error:
                self._logger.warning("no snapshot for those who watch the server; the next follows", reason=str(error))
            except Exception:
                self._logger.exception("no snapshot for those who watch the server; the next follows")
            await asyncio.sleep(max(began + SOON_SECONDS - self._clock.monotonic(), 0.0))
            with suppress(TimeoutError):
                async with asyncio.timeout(began + PERIOD_SECONDS - self._clock.monotonic()):
                    await self._came.wait()
        self._ticking = None
        self._decided.clear()

    async def _tick(self) -> None:
        wanted = self._wanted()
        snapshot = await self._snapshot(frozenset[Kind]().union(*wanted.subjects.values()))
        access = self._access
        decide = None if access is None else self._decider(access, wanted.version)
        rights = await asyncio.to_thread(_rights, snapshot, list(wanted.subjects), decide)
        groups = sorted({name for _, seen in rights.values() for name in seen.worst_groups()})
        watched = any("groups" in kinds for kinds in wanted.subjects.values())
        states = await self._states(groups) if watched and groups else {}
        encodings = await asyncio.to_thread(_encodings, wanted.subjects, rights, states)
        # Together: who reads both finds what each snapshot took.
        self._made += 1
        self._encoded += len(encodings)
        if access is not None and access.version != wanted.version:
            return  # somebody may see less by now than these say
        self._offer(rights, encodings)

    def _wanted(self) -> _Wanted:
        subjects: dict[Subject | None, frozenset[Kind]] = {}
        for viewer in self._viewers:
            subjects[viewer.subject] = subjects.get(viewer.subject, frozenset()).union(viewer.kinds)
        return _Wanted(subjects, 0 if self._access is None else self._access.version)

    def _decider(self, access: Access, version: int) -> "_Decide":
        def decide(subject: Subject, kind: str, name: str) -> bool:
            known_version, known = self._decided.get(subject, (-1, {}))
            if known_version != version:
                known = {}
                self._decided[subject] = version, known
            found = known.get((kind, name))
            if found is None:
                found = known[kind, name] = access.decide(subject, "describe", kind, name).allowed  # type: ignore[arg-type]
            return found

        return decide

    def _offer(self, rights: "_Rights", encodings: Encodings) -> None:
        joined: dict[tuple[Sees, tuple[Kind, ...]], bytes] = {}
        for viewer in self._viewers:
            if (found := rights.get(viewer.subject)) is None:
                continue  # he came meanwhile
            sees, kinds = found[0], tuple(viewer.kinds)
            if any((sees, kind) not in encodings for kind in kinds):
                continue
            text = joined.get((sees, kinds))
            if text is None:
                text = joined[sees, kinds] = b"".join(encodings[sees, kind] for kind in kinds)
            self._missed += viewer.offer(text)


_Decide = Callable[[Subject, str, str], bool]
_Rights = Mapping[Subject | None, tuple[Sees, Seen]]


def _rights(snapshot: Snapshot, subjects: Sequence[Subject | None], decide: _Decide | None) -> _Rights:
    """What each subject sees; those who see the same share it. On a thread."""
    shared: dict[Sees, tuple[Sees, Seen]] = {}
    found: dict[Subject | None, tuple[Sees, Seen]] = {}
    topics, groups = snapshot.topic_names(), snapshot.groups
    for subject in subjects:
        sees = ALL if decide is None or subject is None else _sees(subject, topics, groups, decide)
        if sees not in shared:
            shared[sees] = sees, Seen(snapshot, sees)
        found[subject] = shared[sees]
    return found


def _sees(subject: Subject, topics: Sequence[str], groups: Sequence[str], decide: _Decide) -> Sees:
    seen_topics = frozenset(name for name in topics if decide(subject, "topic", name))
    seen_groups = frozenset(name for name in groups if decide(subject, "group", name))
    cluster = decide(subject, "cluster", "cluster")
    # Who sees all there are sees what is only summed up, too, where he may describe the cluster.
    every = cluster and len(seen_topics) == len(set(topics))
    return Sees(None if every else seen_topics, seen_groups, cluster)


def _encodings(
    subjects: Mapping[Subject | None, frozenset[Kind]], rights: _Rights, states: States
) -> dict[tuple[Sees, Kind], bytes]:
    """Encodes each event once for each set of rights. On a thread."""
    found: dict[tuple[Sees, Kind], bytes] = {}
    for subject, kinds in subjects.items():
        sees, seen = rights[subject]
        for kind in sorted(kinds):
            if (sees, kind) not in found:
                found[sees, kind] = b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(seen.document(kind, states)))
    return found
