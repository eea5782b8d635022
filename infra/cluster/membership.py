"""A member as it runs: it beats and looks by itself, on an event loop, with the store's calls on threads of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from siltlog.infra.clock import Clock
from siltlog.infra.cluster import steps
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import Beat, Wish, WishKind
from siltlog.infra.cluster.identity import Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.refusals import Refusals
from siltlog.infra.cluster.steps import Steps
from siltlog.infra.cluster.view import ClusterView
from siltlog.infra.errors import ConfigError, SiltlogError, Unavailable, problem
from siltlog.infra.store.store import ObjectStore

_Answer = TypeVar("_Answer")

THREADS = 4
"""Its own: a store that keeps flushes waiting must not keep beats waiting behind them."""
JOIN_LEASES = 6
JOIN_SECONDS_MIN = 30.0
WISH_SECONDS = 20.0
PATIENCE_SECONDS = 5.0
"""How long the controller keeps what is asked for too early; then it says why it cannot be done."""
AWAY_SECONDS = 2.0


class Membership:
    """Used on one event loop."""

    def __init__(
        self,
        member: Member,
        store: ObjectStore,
        timing: Timing,
        clock: Clock,
        ids: Callable[[], str],
        logger: Any,
        on_fatal: Callable[[ConfigError], None],
        refusals: Refusals,
    ) -> None:
        """`on_fatal` hears that another process is this node: this one must end. `refusals` are those of the member."""
        self._member = member
        self._store = store
        self._timing = timing
        self._clock = clock
        self._ids = ids
        self._logger = logger
        self._on_fatal = on_fatal
        self._refusals = refusals
        self._threads = ThreadPoolExecutor(THREADS, "silt-member")
        self._calls: set[Future[Any]] = set()
        """Calls that threads are at, also those that nobody waits for any more."""
        self._told: tuple[ClusterView, str] = (member.view, member.journal)
        self._listeners: list[Callable[[ClusterView], None]] = []
        self._changed = asyncio.Event()
        self._beat_soon = asyncio.Event()
        self._look_soon = asyncio.Event()
        self._failing: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    # What others are told.

    @property
    def view(self) -> ClusterView:
        """The newest view that it knows."""
        return self._member.view

    @property
    def node(self) -> str:
        return self._member.identity.node

    @property
    def addresses(self) -> Addresses:
        """Says which members may be called, and told, where the view has them."""
        return self._member.addresses

    @property
    def journal(self) -> str:
        """The journal of this start; another once that is lost, or sealed."""
        return self._member.journal

    @property
    def in_view(self) -> bool:
        """Whether the newest view lists that journal."""
        return self._member.in_view

    @property
    def controllers_redis(self) -> str:
        """What the controller has found in its Redis; empty where that is not known, or this node is it."""
        return self._member.controllers_redis

    @property
    def fresh(self) -> bool:
        """Whether its own newest beat is younger than the lease: else others may have taken its place."""
        return self._member.fresh

    @property
    def silent_s(self) -> float:
        """How long ago it was last heard of, or heard of others, whichever is longer."""
        return self._member.silent_s

    def on_view(self, listener: Callable[[ClusterView], None]) -> None:
        """Has `listener` called on the event loop with each newer view, and when the journal is another."""
        self._listeners.append(listener)

    def reasons(self) -> list[str]:
        """Sentences that say why it is no member now."""
        if self.in_view:
            return []
        return [f"cluster: no view lists this start of node {self.node} yet; the newest is {self.view.number}"]

    def warnings(self) -> list[str]:
        found = [] if self.fresh else [f"cluster: no beat has come into the store for {self._timing.lease_ms} ms"]
        found += [
            f"cluster: node {node} is not called where the view says: that is not proven by the secret of this cluster"
            for node, entry in sorted(self.view.members())
            if not self.addresses.counts(node, entry)
        ]
        found += [
            f"cluster: node {node} has a secret (SILT_SECRET_FILE), and this node has none: it refuses what this asks"
            for node, entry in sorted(self.view.members())
            if self.addresses.lacks(entry)
        ]
        found += [
            f"cluster: clients of Kafka are not told of node {node}: where the view says that it is is not proven by "
            "the secret of this cluster"
            for node, entry in sorted(self.view.members())
            if entry.kafka and not self.addresses.kafka(node, entry)
        ]
        return [*found, *(f"cluster: {failure}" for failure in sorted(self._failing))]

    async def beats(self) -> dict[str, Beat]:
        """Reads what all nodes say of themselves. Raises Unavailable."""
        return await self._run(steps.all_beats())

    # Its life.

    async def join(self) -> None:
        """Comes back once a view lists this start.

        Raises ConfigError when another is this node, or no view lists it, and Unavailable when the store cannot be
        reached for all of that time: it is asked without patience (CS7), so one slow answer is no reason not to start.
        """
        limit = max(JOIN_SECONDS_MIN, JOIN_LEASES * self._timing.lease_s)
        unreachable: list[Unavailable] = []
        try:
            async with asyncio.timeout(limit):
                while not await self._patiently(self._member.arrive, unreachable):
                    await self._rest(self._look_soon, self._timing.look_s)
                await self._patiently(self._member.beat, unreachable)
                turns = (self._beats(), self._looks(), self._surveys())
                self._tasks = [asyncio.create_task(turn) for turn in turns]
                await self._until(lambda: self.in_view)
        except TimeoutError:
            await self._stop()
            if unreachable:
                raise unreachable[-1] from None
            controller = self.view.nodes.get(self.view.controller)
            who = f"node {self.view.controller} at {controller.url}" if controller else "nobody"
            raise ConfigError(
                f"node {self.node} was in no view of the cluster after {limit:.0f} s; {who} writes them: look there"
            ) from None
        except BaseException:
            await self._stop()
            raise
        self._logger.info("joined the cluster", node=self.node, view=self.view.number, controller=self.view.controller)

    def beat_soon(self) -> None:
        """What it reports has changed: the others hear of it at once."""
        self._beat_soon.set()

    def look_soon(self) -> None:
        """There may be a newer view."""
        self._look_soon.set()

    def reopen(self) -> None:
        """Goes on under another journal, as the present one was sealed."""
        self._member.reopen()
        self._tell()
        self.beat_soon()

    async def ask(self, kind: WishKind, *, node: str = "", topic: str = "", topic_id: str = "") -> None:
        """Comes back once a view does what is asked for, which may wait for what was asked before.

        Raises Refused with the controller's sentence, OutcomeUnknown where no view tells of it in time.
        """
        wish = Wish(id=self._ids(), kind=kind, node=node, topic=topic, topic_id=topic_id, patient=True)
        self._member.wish(wish)
        self._beat_soon.set()
        try:
            async with asyncio.timeout(WISH_SECONDS):
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await self._until(lambda: wish.id in self.view.wishes)
                if wish.id not in self.view.wishes:
                    self._member.wish(replace(wish, patient=False))
                    self._beat_soon.set()
                await self._until(lambda: wish.id in self.view.wishes)
        except TimeoutError:
            raise problem(
                "ack_timeout",
                f"the controller, node {self.view.controller}, has not answered; it may do it yet: see GET /v1/nodes",
            ) from None
        finally:
            self._member.drop(wish.id)
        if refusal := self.view.wishes.get(wish.id, ""):
            raise problem("invalid_request", refusal)

    async def leave(self, seconds_max: float) -> None:
        """Has its topics handed to others, as far as that is done in time; there may be nobody to have them."""
        self._member.goes("draining")
        self.beat_soon()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._until(lambda: not self._has_topics() or not self._others())

    async def end(self) -> bool:
        """Says that it is gone, so that nobody waits for it; whether no thread of it hangs.

        Nothing of this start may acknowledge any more.
        """
        await self._stop()
        self._member.goes("away")
        with suppress(TimeoutError, SiltlogError):
            async with asyncio.timeout(AWAY_SECONDS):
                await self._run(self._member.beat())
        self._threads.shutdown(wait=False, cancel_futures=True)
        # A look that was under way comes to its end, unless the store does not answer.
        if under_way := [asyncio.wrap_future(call) for call in [*self._calls]]:
            await asyncio.wait(under_way, timeout=AWAY_SECONDS)
        return not self._calls

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._refusals.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def _has_topics(self) -> bool:
        return self.in_view and any(
            term.journal == self.journal
            for topic in self.view.topics.values()
            for term in (topic.owner, topic.to)
            if term is not None
        )

    def _others(self) -> bool:
        return any(node != self.node and entry.state == "up" for node, entry in self.view.nodes.items())

    # Its turns.

    async def _beats(self) -> None:
        while True:
            began = self._clock.monotonic()
            await self._turn("its beat cannot be written", self._run(self._member.beat()))
            spent = self._clock.monotonic() - began
            await self._rest(self._beat_soon, max(0.0, self._timing.heartbeat_s - spent))

    async def _looks(self) -> None:
        while True:
            await self._turn("the newest view cannot be read, or written", self._run(self._member.look()))
            self._refusals.follow(self._member.suspects, self.look_soon)
            await self._rest(self._look_soon, self._member.rest_s)

    async def _surveys(self) -> None:
        while True:
            await self._turn("tables cannot be looked for", self._surveyed())
            await asyncio.sleep(self._timing.look_s)

    async def _surveyed(self) -> None:
        if await self._run(self._member.survey()):
            self.look_soon()

    async def _turn(self, failure: str, turn: Coroutine[Any, Any, None]) -> None:
        """Nothing that is wrong in one turn may keep the next from coming."""
        try:
            await turn
        except ConfigError as error:
            self._logger.critical("this node is no member of the cluster any more", reason=error.detail)
            self._on_fatal(error)
        except SiltlogError as error:
            self._failed(failure, error.detail)
        except Exception as error:
            self._failed(failure, repr(error))
        else:
            if failure in self._failing:
                self._failing.remove(failure)
                self._logger.info("cluster: over", failure=failure)

    def _failed(self, failure: str, reason: str) -> None:
        if failure not in self._failing:
            self._failing.add(failure)
            self._logger.warning("cluster: trouble", failure=failure, reason=reason)

    async def _patiently(self, turn: Callable[[], Steps[_Answer]], unreachable: list[Unavailable]) -> _Answer:
        """Takes a turn until the store answers; notes why it does not."""
        while True:
            try:
                answer = await self._run(turn())
            except Unavailable as error:
                unreachable.append(error)
                await self._rest(self._look_soon, self._timing.look_s)
            else:
                unreachable.clear()
                return answer

    async def _rest(self, soon: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await soon.wait()
        soon.clear()

    async def _run(self, turn: Steps[_Answer]) -> _Answer:
        """Takes the steps of a turn, each on a thread."""
        try:
            call = next(turn)
            while True:
                self._tell()
                under_way = self._threads.submit(call, self._store)
                self._calls.add(under_way)
                under_way.add_done_callback(self._calls.discard)
                try:
                    answer = await asyncio.wrap_future(under_way)
                except Exception as error:
                    call = turn.throw(error)
                else:
                    call = turn.send(answer)
        except StopIteration as ended:
            result: _Answer = ended.value
            return result
        finally:
            turn.close()
            self._tell()

    def _tell(self) -> None:
        """Tells of a newer view, and of another journal."""
        now = (self._member.view, self._member.journal)
        if now[0] is self._told[0] and now[1] == self._told[1]:
            return
        self._told = now
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners:
            listener(now[0])

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()
