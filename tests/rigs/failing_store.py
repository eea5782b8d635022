"""An object store in memory that fails in every way that one over a network may, by a seed and a virtual clock.

    clock = VirtualClock()
    world = FailingStore(random.Random(seed), clock, Weather(lost=0.1, late=0.05))
    store = world.of("n1")    # the store as one caller reaches it
    world.cut("n1")           # nothing that it asks arrives
    world.slow_down(60)       # everybody gets 503 for so many seconds

What a caller gave up on may still land, up to `late_seconds` afterwards; `clock.advance` and any later request let it.
One request is seen whole or not at all, and who asks after an answer sees what it told of, as on S3. A list is no
request but one for each page: what others do between two pages (`meanwhile`) it may see or miss.
"""

import builtins
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

import pyarrow as pa

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ByteStream, ObjectInfo, Put

_Answer = TypeVar("_Answer")


class VirtualClock:
    """Time that passes only when it is told to, the same for the store and for who takes it as a clock."""

    def __init__(self, seconds: float = 1_000.0) -> None:
        self._seconds = seconds
        self._since: list[Callable[[], None]] = []

    def now_us(self) -> int:
        return int(self._seconds * 1e6)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._seconds += seconds
        for told in self._since:
            told()

    def call_after(self, told: Callable[[], None]) -> None:
        """After every step of time."""
        self._since.append(told)


class SkewedClock:
    """The clock of one machine: another wall time, another rate, and pauses of which it knows nothing."""

    def __init__(self, world: VirtualClock, ahead_seconds: float = 0.0, rate: float = 1.0) -> None:
        self._world = world
        self._ahead_seconds = ahead_seconds
        self._rate = rate
        self._begun = world.monotonic()

    def now_us(self) -> int:
        return int((self.monotonic() + self._ahead_seconds) * 1e6)

    def monotonic(self) -> float:
        return self._begun + (self._world.monotonic() - self._begun) * self._rate

    def sleep(self, seconds: float) -> None:
        self._world.advance(seconds / self._rate)

    def jump(self, seconds: float) -> None:
        """Moves the wall time alone."""
        self._ahead_seconds += seconds


@dataclass
class Weather:
    """How likely it is that a request fares so; reads are lost alone."""

    lost: float = 0.0
    """It arrives or it does not, each as likely, and no answer comes."""
    late: float = 0.0
    """No answer comes, and it is done later."""
    doubled: float = 0.0
    """It is done twice, at once or the second time later; the answer is that of either."""
    slow_down: float = 0.0
    """It is answered with 503, and not done."""
    late_seconds: float = 30.0
    page: int = 1000
    """Objects of a list that one answer has."""
    sorts: bool = True
    """Whether the pages of a list go by the names. Without, one that came meanwhile may be seen, and one before it not;
    a list as a whole is in order either way."""


class _Lost(Exception):
    """No answer came."""


class FailingStore:
    """What all callers share. For one thread."""

    def __init__(self, chance: random.Random, clock: VirtualClock, weather: Weather | None = None) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        """Content and the time of its writing, in milliseconds, by path."""
        self.weather = weather or Weather()
        self.meanwhile: Callable[[], None] | None = None
        """Called while a request is under way, before it arrives or before its answer does, and between the pages of a
        list: what others do there. Not while another call of it goes on."""
        self.requests = 0
        self._chance = chance
        self._salt = chance.random()
        self._clock = clock
        self._cut: set[str] = set()
        self._mute: set[str] = set()
        self._slow_until = 0.0
        self._coming: builtins.list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._others_act = False
        clock.call_after(self.land)

    def of(self, caller: str) -> "SeenStore":
        return SeenStore(self, caller)

    def cut(self, caller: str) -> None:
        self._cut.add(caller)

    def mute(self, caller: str) -> None:
        """What it asks for is done, and it hears of none."""
        self._mute.add(caller)

    def mend(self, caller: str) -> None:
        self._cut.discard(caller)
        self._mute.discard(caller)

    def slow_down(self, seconds: float) -> None:
        self._slow_until = self._clock.monotonic() + seconds

    def land(self, *, everything: bool = False) -> None:
        """Does what is late and due by now, or everything."""
        while self._coming and (everything or self._coming[0][0] <= self._clock.monotonic()):
            heapq.heappop(self._coming)[2]()

    def later(self, do: Callable[[], object]) -> None:
        due = self._clock.monotonic() + self._chance.uniform(0, self.weather.late_seconds)
        heapq.heappush(self._coming, (due, next(self._count), do))

    def now_ms(self) -> int:
        return self._clock.now_us() // 1000

    def let_others_act(self) -> None:
        if self.meanwhile is not None and not self._others_act:
            self._others_act = True
            try:
                self.meanwhile()
            finally:
                self._others_act = False

    def read(self, caller: str, do: Callable[[], _Answer]) -> _Answer:
        self._reach(caller)
        if caller in self._mute:
            raise _Lost
        answer = do()
        if self._chance.random() < self.weather.lost:
            raise _Lost
        return answer

    def change(self, caller: str, do: Callable[[], _Answer]) -> _Answer:
        self._reach(caller)
        weather, fate = self.weather, self._chance.random()
        if fate < weather.lost:
            if self._chance.random() < 0.5:
                do()
                self.let_others_act()
            raise _Lost
        fate -= weather.lost
        if fate < weather.late:
            self.later(do)
            raise _Lost
        fate -= weather.late
        answer = do()
        if fate < weather.doubled:
            if self._chance.random() < 0.5:
                self.later(do)
            else:
                self.let_others_act()
                again = do()
                answer = again if self._chance.random() < 0.5 else answer
        self.let_others_act()
        if caller in self._mute:
            raise _Lost
        return answer

    def _reach(self, caller: str) -> None:
        self.requests += 1
        self.land()
        self.let_others_act()
        slow = self._clock.monotonic() < self._slow_until or self._chance.random() < self.weather.slow_down
        if caller in self._cut or slow:
            raise _Lost

    def place(self, path: str) -> tuple[int, str]:
        """Gives what lists are sorted by."""
        return (0 if self.weather.sorts else crc32(f"{self._salt}{path}".encode())), path


class SeenStore:
    """The store as one caller reaches it: an ObjectStore."""

    def __init__(self, world: FailingStore, caller: str) -> None:
        self.root_uri = "memory://root"
        self._world = world
        self._caller = caller

    def uri(self, path: str, scheme: str | None = None) -> str:
        return f"{self.root_uri}/{path}"

    def storage_options(self) -> dict[str, str]:
        return {}

    def get(self, path: str) -> bytes:
        return self._read(path, lambda: self._found(path)[0])

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        content = bytes(data)
        try:
            self._world.change(self._caller, lambda: self._write(path, content))
        except _Lost:
            raise self._away(path) from None

    def put_from(self, path: str, source: ByteStream) -> None:
        self.put(path, source.read())

    def put_if_absent(self, path: str, data: bytes) -> Put:
        def do() -> Put:
            if path in self._world.objects:
                return Put.EXISTS
            self._write(path, data)
            return Put.WRITTEN

        try:
            return self._world.change(self._caller, do)
        except _Lost:
            return Put.UNKNOWN

    def info(self, path: str) -> ObjectInfo | None:
        def do() -> ObjectInfo | None:
            return self._info(path) if path in self._world.objects else None

        return self._read(path, do)

    def size(self, path: str) -> int | None:
        info = self.info(path)
        return None if info is None else info.size

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [self.size(path) for path in paths]

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        folder = f"{prefix.strip('/')}/" if prefix else ""
        seen: dict[str, ObjectInfo] = {}
        after = (-1, "")
        while True:
            page: builtins.list[ObjectInfo] = []

            def do(page: builtins.list[ObjectInfo] = page) -> bool:
                nonlocal after
                below = [path for path in self._world.objects if path.startswith(folder)]
                waiting = sorted(place for place in map(self._world.place, below) if place > after)
                taken = waiting[: self._world.weather.page]
                page += [self._info(path) for _, path in taken]
                after = taken[-1] if taken else after
                return len(waiting) > len(taken)

            more = self._read(prefix, do)
            seen |= {info.path: info for info in page}
            if not more:
                return sorted(seen.values())
            self._world.let_others_act()

    def unfinished(self, prefix: str) -> builtins.list[ObjectInfo]:
        return []

    def clock_ms(self) -> int:
        return self._read("", self._world.now_ms)

    def folders(self, prefix: str) -> builtins.list[str]:
        start = len(prefix.strip("/")) + 1 if prefix else 0
        return sorted({info.path[start:].partition("/")[0] for info in self.list(prefix) if "/" in info.path[start:]})

    def delete(self, path: str) -> None:
        try:
            self._world.change(self._caller, lambda: self._world.objects.pop(path, None))
        except _Lost:
            raise self._away(path) from None

    def prune(self, folder: str) -> None:
        """There are no folders."""

    def prune_below(self, folder: str, before_ms: int) -> None:
        """There are no folders."""

    def sync(self, paths: Iterable[str]) -> None:
        """What is told to be written is durable."""

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def _read(self, path: str, do: Callable[[], _Answer]) -> _Answer:
        try:
            return self._world.read(self._caller, do)
        except _Lost:
            raise self._away(path) from None

    def _away(self, path: str) -> SiltlogError:
        return problem("topic_unavailable", f"{self.uri(path)} cannot be reached")

    def _write(self, path: str, data: bytes) -> None:
        self._world.objects[path] = (data, self._world.now_ms())

    def _found(self, path: str) -> tuple[bytes, int]:
        try:
            return self._world.objects[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def _info(self, path: str) -> ObjectInfo:
        content, written_ms = self._world.objects[path]
        return ObjectInfo(path, len(content), written_ms)
