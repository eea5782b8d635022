"""The tasks of an asynchronous consumer: heartbeats and fetches beside the one that reads."""

import asyncio
import inspect
import logging
import math
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import Beat, Goodbye, GroupMember, Rest
from siltlog.consumers.library.positions import Fetch
from siltlog.consumers.library.program import Program, Tell
from siltlog.consumers.library.sources.asynchronous import AsyncSource
from siltlog.infra.client.async_transport import AsyncCaller
from siltlog.infra.client.core import Request
from siltlog.infra.clock import Clock
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, problem

_log = logging.getLogger("siltlog.consumer")

T = TypeVar("T")

LEAVES_ALL_WHOLE = (SiltlogError, asyncio.CancelledError)
"""What ends a call without leaving anything half done: all else may come between any two steps."""


class ConsumerTasks:
    """Used in one event loop, but for `wake`."""

    def __init__(
        self,
        inbox: Inbox,
        sources: Mapping[str, AsyncSource],
        caller: AsyncCaller,
        background: AsyncCaller,
        clock: Clock,
    ) -> None:
        """`caller` is for the task that reads, `background` for the others."""
        self._inbox = inbox
        self._sources = sources
        self._caller = caller
        self._background = background
        self._clock = clock
        self._jitter = random.Random().random  # noqa: S311
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self._attending: asyncio.Task[None] | None = None
        self._heartbeats_begun = False
        self._pid = os.getpid()

    def enter(self) -> None:
        """Raises Refused outside of the event loop it was first used in, and after a fork."""
        if self._pid != os.getpid():
            raise problem("invalid_request", "this consumer was made before a fork; make a new AsyncConsumer here")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise problem("invalid_request", "this AsyncConsumer belongs to another event loop; make one in each loop")

    async def run(self, program: Program[T]) -> T:
        """Runs the program and returns its result; makes its requests, and calls and awaits its callbacks."""
        try:
            step = program.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        return await self._go_on(program, step)

    async def attend(self, program: Program[None]) -> None:
        """Runs what must go to its end: who waits may be cancelled, and the next one goes on waiting for it."""
        if self.is_attending:
            await self.run(program)
            return
        await self._end_attending()
        try:
            step = program.send(None)
        except StopIteration:
            return
        self._attending = asyncio.get_running_loop().create_task(self._go_on(program, step))
        await self._end_attending()

    async def let_attending_end(self) -> None:
        """Waits for what a cancelled call left running; a failure of it is only logged."""
        task = self._attending
        if task is not None and not self.is_attending:
            await asyncio.wait([task])
            self._attending = None
            if not task.cancelled() and task.exception() is not None:
                _log.warning("what went on between two records failed: %s", task.exception())

    async def _end_attending(self) -> None:
        task = self._attending
        if task is not None:
            try:
                await asyncio.shield(task)
            finally:
                if task.done() and self._attending is task:
                    self._attending = None

    async def _go_on(self, program: Program[T], step: Request | Tell) -> T:
        while True:
            answer: Any = None
            raised: BaseException | None = None
            try:
                if isinstance(step, Tell):
                    told = step.callback(step.partitions)
                    if inspect.isawaitable(told):
                        await told
                else:
                    answer = await self._caller.call(step)
            except BaseException as error:
                raised = error
            try:
                step = program.send(answer) if raised is None else program.throw(raised)
            except StopIteration as done:
                result: T = done.value
                return result

    @property
    def is_attending(self) -> bool:
        """Whether this is a callback's task."""
        return self._attending is not None and asyncio.current_task() is self._attending

    def begin_polling(self) -> None:
        """Heartbeats begin with the first poll, and go on again."""
        if self._inbox.member is not None:
            self._inbox.member.poll_begins()
            self.notify()
            self.start()

    def end_polling(self) -> None:
        if self._inbox.member is not None:
            self._inbox.member.poll_ends(self._clock.monotonic())

    def start(self) -> None:
        """Joins the group, where there is one."""
        if not self._heartbeats_begun and self._inbox.member is not None:
            self._heartbeats_begun = True
            self._spawn(self._heartbeats(self._inbox.member))

    def launch(self) -> None:
        """Has fetched what the inbox wants next."""
        for fetch in self._inbox.depart():
            self._spawn(self._fetch(fetch))

    async def wait(self, deadline: float, ready: Callable[[], bool] = bool) -> None:
        """Returns once something has come, or is due, or at `deadline` (monotonic seconds); or it is `ready`."""
        if not (self._inbox.has_news or ready()):
            await self._await_change(self._inbox.wait_until(deadline))

    def notify(self) -> None:
        """Has every waiting call look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _await_change(self, until: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            seconds = None if until == math.inf else max(0.0, until - self._clock.monotonic())
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    def wake(self, *, close: bool = False) -> None:
        if close:
            self._inbox.closing = True
        else:
            self._inbox.woken = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.notify)

    def interrupt(self) -> None:
        """Calls that go on trying end with their last error, until `resume`."""
        self._caller.interrupted.set()

    def resume(self) -> None:
        self._caller.interrupted.clear()

    async def end(self, program: Program[None]) -> None:
        """Runs the last program, leaves the group and ends the tasks."""
        try:
            await self.let_attending_end()
            await self.run(program)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        member = self._inbox.member
        goodbye = None if member is None else member.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if goodbye is not None:
            await self._part(Goodbye(goodbye), self._caller)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _heartbeats(self, member: GroupMember) -> None:
        while (step := member.next_step(self._clock.monotonic())) is not None:
            if isinstance(step, Rest):
                await self._await_change(step.until)
            elif isinstance(step, Goodbye):
                self.notify()
                await self._part(step, self._background)
            else:
                member.heard(step, await self._beat(step), self._clock.monotonic(), self._jitter())
                self.notify()

    async def _beat(self, beat: Beat) -> Any:
        try:
            return (await self._background.call(beat.request)).json()
        except SiltlogError as error:
            return error
        except Exception as defect:
            _log.exception("a heartbeat failed")
            return OutcomeUnknown(f"a heartbeat failed: {defect!r}", error_code="internal")

    async def _part(self, goodbye: Goodbye, caller: AsyncCaller) -> None:
        try:
            await caller.call(goodbye.request)
        except SiltlogError as error:
            _log.warning("group %s was not told that this member left: %s", self._inbox.options.group, error)

    async def _fetch(self, fetch: Fetch) -> None:
        try:
            answer: Any = await self._sources[fetch.plan.source].read(fetch.plan)
        except SiltlogError as error:
            answer = error
        except Exception as defect:
            _log.exception("a fetch failed")
            answer = OutcomeUnknown(f"a fetch failed: {defect!r}", error_code="internal")
        self._inbox.arrive(fetch, answer)
        self.notify()


class AsyncTurn:
    """The right of one task at a time to use a consumer, which its callbacks have too."""

    def __init__(self, inbox: Inbox, tasks: ConsumerTasks) -> None:
        self.user: asyncio.Task[Any] | None = None
        self._inbox = inbox
        self._tasks = tasks
        self._free = asyncio.Event()
        self._free.set()
        self._closed = False
        self.close_is_due = False
        """Whether a run is to close the consumer when it ends, as somebody within it asked for that."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Raises Refused for another task, after `close`, in another event loop and after a fork."""
        if self._closed or self._inbox.closing:
            raise problem("invalid_request", "this consumer is closed; make a new one")
        self._tasks.enter()
        if self._is_of_another():
            raise self._inbox.in_use("task")
        if self.user is not None or self._tasks.is_attending:
            # Within one of its own calls: a callback's.
            yield
            return
        self.user = asyncio.current_task()
        self._free.clear()
        try:
            self._inbox.begin_turn()
            yield
        except LEAVES_ALL_WHOLE:
            raise
        except BaseException:
            self._inbox.interrupt()
            raise
        finally:
            self.user = None
            self._free.set()

    @asynccontextmanager
    async def last(self) -> AsyncIterator[bool]:
        """Ends the turn that there is and waits for that; whether there is anything to close.

        Within a run nothing is to be closed yet: the run ends when what it has under way does, and then closes.
        """
        self._tasks.enter()
        self._tasks.wake(close=True)
        if self._inbox.is_within_run:
            self.close_is_due = True
            yield False
            return
        if self._is_of_another():
            self._tasks.interrupt()
            await self._free.wait()
        closed, self._closed = self._closed, True
        if not closed:
            self._tasks.resume()
        yield not closed

    def _is_of_another(self) -> bool:
        return self.user not in (None, asyncio.current_task()) and not self._tasks.is_attending
