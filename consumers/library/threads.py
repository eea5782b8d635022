"""The threads of a consumer: heartbeats and fetches beside the one that reads."""

import inspect
import logging
import math
import os
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any, TypeVar

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import Beat, Goodbye, GroupMember, Rest
from siltlog.consumers.library.positions import Fetch
from siltlog.consumers.library.program import Program, Tell
from siltlog.consumers.library.sources.server import Source
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, problem

_log = logging.getLogger("siltlog.consumer")

T = TypeVar("T")

LOOK_S = 1.0
"""How often who waits for a turn looks whether the thread that has it is still there."""


class ConsumerThreads:
    """`_lock` is held wherever the inbox goes on; it is free during requests and callbacks."""

    def __init__(
        self, inbox: Inbox, sources: Mapping[str, Source], caller: Caller, background: Caller, clock: Clock
    ) -> None:
        """`caller` is for the thread that reads, `background` for the others."""
        self._inbox = inbox
        self._sources = sources
        self._caller = caller
        self._background = background
        self._clock = clock
        self._jitter = random.Random().random  # noqa: S311
        # Entered as it is: Ctrl-C behind the first step of a Condition's own `__enter__` would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._heartbeats_begun = False
        self._fetches: queue.SimpleQueue[Fetch | None] = queue.SimpleQueue()
        self._fetchers = 0
        self._busy = 0

    def run(self, program: Program[T]) -> T:
        """Runs the program and returns its result; makes its requests and calls its callbacks."""
        answer: Any = None
        raised: BaseException | None = None
        while True:
            try:
                with self._lock:
                    step = program.send(answer) if raised is None else program.throw(raised)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = raised = None
            try:
                answer = step.callback(step.partitions) if isinstance(step, Tell) else self._caller.call(step)
            except BaseException as error:
                raised = error

    attend = run
    """What goes on between two records: a thread that waits for it is not cancelled, as a task may be."""

    def begin_polling(self) -> None:
        """Heartbeats begin with the first poll, and go on again."""
        member = self._inbox.member
        if member is None:
            return
        with self._lock:
            member.poll_begins()
            self._changed.notify_all()
        self.start()

    def end_polling(self) -> None:
        member = self._inbox.member
        if member is not None:
            with self._lock:
                member.poll_ends(self._clock.monotonic())

    def start(self) -> None:
        """Joins the group, where there is one."""
        member = self._inbox.member
        if member is not None and not self._heartbeats_begun:
            _begin("siltlog-heartbeat", partial(self._heartbeats, member))

    def launch(self) -> None:
        """Has fetched what the inbox wants next."""
        for fetch in self._inbox.depart():
            with self._lock:
                self._busy += 1
                new = self._busy > self._fetchers
                self._fetchers += new
            if new:
                _begin("siltlog-fetch", self._serve)
            self._fetches.put(fetch)

    def wait(self, deadline: float, ready: Callable[[], bool] = bool) -> None:
        """Returns once something has come, or is due, or at `deadline` (monotonic seconds); or it is `ready`."""
        until = self._inbox.wait_until(deadline)
        with self._lock, self._interruptible():
            if not (self._inbox.has_news or ready()):
                self._changed.wait(max(0.0, until - self._clock.monotonic()))

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Returns once it is `ready`, whatever else comes, or after `seconds`."""
        with self._lock, self._interruptible():
            self._changed.wait_for(ready, None if seconds == math.inf else seconds)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C right behind the step by which a wait lets go of the lock finds it let go, as nobody expects it."""
        try:
            yield
        except BaseException:
            try:
                self._changed.notify(0)
            except RuntimeError:
                self._lock.acquire()
            raise

    def tell(self, change: Callable[[], None]) -> None:
        """Makes a change that a wait may be for."""
        with self._lock:
            change()
            self._changed.notify_all()

    def wake(self, *, close: bool = False) -> None:
        with self._lock:
            if close:
                self._inbox.closing = True
            else:
                self._inbox.woken = True
            self._changed.notify_all()

    def interrupt(self) -> None:
        """Calls that go on trying end with their last error, until `resume`."""
        self._caller.interrupted.set()

    def resume(self) -> None:
        self._caller.interrupted.clear()

    def end(self, program: Program[None]) -> None:
        """Runs the last program, leaves the group and ends the threads; a fetch under way is not waited for."""
        try:
            self.run(program)
        finally:
            self._stop()

    def _stop(self) -> None:
        self._background.interrupted.set()
        with self._lock:
            member = self._inbox.member
            goodbye = None if member is None else member.end()
            for _ in range(self._fetchers):
                self._fetches.put(None)
            self._changed.notify_all()
        if goodbye is not None:
            self._part(Goodbye(goodbye), self._caller)

    def _heartbeats(self, member: GroupMember) -> None:
        with self._lock:
            # The thread says it: one whose start was interrupted may never run.
            if self._heartbeats_begun:
                return
            self._heartbeats_begun = True
        while True:
            with self._lock:
                now = self._clock.monotonic()
                step = member.next_step(now)
                if step is None:
                    return
                if isinstance(step, Rest):
                    self._changed.wait(None if step.until == math.inf else max(0.0, step.until - now))
                    continue
                if isinstance(step, Goodbye):
                    self._changed.notify_all()
            if isinstance(step, Goodbye):
                self._part(step, self._background)
            else:
                answer = self._beat(step)
                with self._lock:
                    member.heard(step, answer, self._clock.monotonic(), self._jitter())
                    self._changed.notify_all()

    def _beat(self, beat: Beat) -> Any:
        try:
            return self._background.call(beat.request).json()
        except SiltlogError as error:
            return error
        except Exception as defect:
            _log.exception("a heartbeat failed")
            return OutcomeUnknown(f"a heartbeat failed: {defect!r}", error_code="internal")

    def _part(self, goodbye: Goodbye, caller: Caller) -> None:
        try:
            caller.call(goodbye.request)
        except SiltlogError as error:
            _log.warning("group %s was not told that this member left: %s", self._inbox.options.group, error)

    def _serve(self) -> None:
        while (fetch := self._fetches.get()) is not None:
            try:
                answer: Any = self._sources[fetch.plan.source].read(fetch.plan)
            except SiltlogError as error:
                answer = error
            except Exception as defect:
                _log.exception("a fetch failed")
                answer = OutcomeUnknown(f"a fetch failed: {defect!r}", error_code="internal")
            with self._lock:
                self._busy -= 1
                self._inbox.arrive(fetch, answer)
                self._changed.notify_all()


def _begin(name: str, work: Callable[[], None]) -> None:
    """Starts a thread. What interrupts the one that starts it may come as RuntimeError out of Python's own locks."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


class Taking:
    """One taking of a turn, by `with`, in a thread and in the frame of the call that has it."""

    __slots__ = ("_turn", "frame", "thread")

    def __init__(self, turn: "Turn", frame: FrameType | None) -> None:
        self._turn = turn
        self.thread = threading.current_thread()
        self.frame = frame

    def __enter__(self) -> None:
        self._turn.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn.end(self, kind)

    @property
    def goes_on(self) -> bool:
        """Whether this thread is within the call, which then called back."""
        frame = inspect.currentframe()
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is not None


class Turn:
    """The right of one thread at a time to use a consumer, which that thread may take again in a callback.

    Ctrl-C raises between any two steps, also between the end of a call and who called. A turn whose frame is gone was
    cut short there, even if nothing heard of it; what was handed out in it may not have been received.
    """

    def __init__(self, inbox: Inbox, threads: ConsumerThreads) -> None:
        self._inbox = inbox
        self._threads = threads
        self._lock = threading.Lock()
        self._holder: Taking | None = None
        self._ended = threading.Event()
        self._is_awaited = False
        self._closed = False
        self.close_is_due = False
        """Whether a run is to close the consumer when it ends, as somebody within it asked for that."""
        self._pid = os.getpid()

    def taken(self) -> Taking:
        """Raises Refused, when it is entered, for another thread, after `close`, and after a fork."""
        # No frame has itself among its variables: nothing but a collection of garbage would free it, and all behind it.
        return Taking(self, getattr(inspect.currentframe(), "f_back", None))

    def begin(self, taking: Taking) -> None:
        if self._closed or self._inbox.closing:
            raise problem("invalid_request", "this consumer is closed; make a new one")
        if self._pid != os.getpid():
            raise problem("invalid_request", "this consumer was made before a fork; make a new Consumer here")
        try:
            if self._claim(taking):
                self._inbox.begin_turn()
        except BaseException:
            if self._holder is taking:
                self._holder = None
            raise

    def _claim(self, taking: Taking) -> bool:
        """Whether the turn begins now, and not within one of this thread that goes on."""
        with self._lock:
            holder = self._holder
            if holder is None:
                self._holder = taking
                return True
        if holder.thread is taking.thread:
            if holder.goes_on:
                return False
        elif holder.thread.is_alive():
            raise self._inbox.in_use("thread")
        self._inbox.interrupt()
        self._holder = taking
        return True

    def end(self, taking: Taking, kind: type[BaseException] | None) -> None:
        if kind is not None and not issubclass(kind, (SiltlogError, StopIteration)):
            self._inbox.interrupt()
        if self._holder is taking:
            self._holder = None
            if self._is_awaited:
                self._ended.set()

    @contextmanager
    def last(self) -> Iterator[bool]:
        """Ends the turn that there is and takes the last one; whether there is anything to close.

        Within a run nothing is to be closed yet: the run ends when what it has under way does, and then closes.
        """
        if self._pid != os.getpid():
            yield False
            return
        self._threads.wake(close=True)
        if self._inbox.is_within_run:
            self.close_is_due = True
            yield False
            return
        taking = self.taken()
        try:
            self._await(taking)
            closed, self._closed = self._closed, True
            self._threads.resume()
            yield not closed
        finally:
            self.end(taking, None)

    def _await(self, taking: Taking) -> None:
        """Takes the turn once no other thread has it."""
        while True:
            self._ended.clear()
            with self._lock:
                holder = self._holder
                if holder is None or not holder.thread.is_alive():
                    self._holder = taking
                    return
            if holder.thread is taking.thread:
                return
            self._is_awaited = True
            self._threads.interrupt()
            if self._holder is holder:
                self._ended.wait(LOOK_S)
