"""Profiles of a process that runs: where its threads are, what its memory grows by, what its tasks wait for."""

import asyncio
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import CodeType, FrameType
from typing import Any, Literal

Kind = Literal["cpu", "memory", "tasks"]
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""The schema of the file of samples, which anybody drops on https://www.speedscope.app."""
SAMPLES_A_SECOND = 100
DEPTH_MAX = 200
"""How many calls of a stack are kept; of a deeper one the outermost are left out."""
THREADS_MAX = 64
PLACES_MAX = 50
"""Places of memory that are told of."""
TASKS_MAX = 200
"""Sorts of tasks that are told of."""
_TASK_DEPTH_MAX = 20

Stack = tuple[tuple[CodeType, int], ...]
"""Calls with their lines, from the outermost."""


class Sampler(threading.Thread):
    """Notes every hundredth of a second where each thread is, until it is stopped."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(name="silt-profile", daemon=True)
        self._monotonic = monotonic
        self._ended = threading.Event()
        self._stacks: dict[int, list[tuple[Stack, float]]] = {}

    def run(self) -> None:
        last = self._monotonic()
        while not self._ended.wait(1 / SAMPLES_A_SECOND):
            now = self._monotonic()
            self.note(sys._current_frames(), now - last)
            last = now

    def end(self) -> None:
        """Returns once it takes no more samples."""
        self._ended.set()
        self.join()

    def note(self, frames: Mapping[int, FrameType], seconds: float) -> None:
        """Has each thread be where it is for `seconds`; one that stays there makes no sample more."""
        for thread, frame in frames.items():
            if thread == self.ident or (thread not in self._stacks and len(self._stacks) >= THREADS_MAX):
                continue
            stack = _stack(frame)
            samples = self._stacks.setdefault(thread, [])
            if samples and samples[-1][0] == stack:
                samples[-1] = (stack, samples[-1][1] + seconds)
            else:
                samples.append((stack, seconds))

    def document(self, name: str, threads: Mapping[int, str]) -> dict[str, Any]:
        """The samples in speedscope's format: a profile of each thread, the busiest first."""
        frames: dict[tuple[CodeType, int], int] = {}
        found = sorted(self._stacks.items(), key=lambda item: -len(item[1]))
        profiles = [
            {
                "type": "sampled",
                "name": threads.get(thread, f"thread {thread}"),
                "unit": "seconds",
                "startValue": 0,
                "endValue": round(sum(seconds for _, seconds in samples), 6),
                "samples": [[frames.setdefault(call, len(frames)) for call in stack] for stack, _ in samples],
                "weights": [round(seconds, 6) for _, seconds in samples],
            }
            for thread, samples in found
        ]
        return {
            "$schema": SCHEMA,
            "shared": {
                "frames": [{"name": code.co_qualname, "file": code.co_filename, "line": line} for code, line in frames]
            },
            "profiles": profiles,
            "activeProfileIndex": 0,
            "name": name,
            "exporter": "siltlog",
        }


def _stack(frame: FrameType | None) -> Stack:
    calls: list[tuple[CodeType, int]] = []
    while frame is not None and len(calls) < DEPTH_MAX:
        calls.append((frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    return tuple(reversed(calls))


async def sampled(name: str, monotonic: Callable[[], float], rest: Callable[[], Coroutine[Any, Any, None]]) -> Any:
    """Where the threads are while `rest` lasts."""
    sampler = Sampler(monotonic)
    sampler.start()
    try:
        await rest()
    finally:
        await asyncio.to_thread(sampler.end)
    threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
    return await asyncio.to_thread(sampler.document, name, threads)


async def grown(rest: Callable[[], Coroutine[Any, Any, None]]) -> dict[str, Any]:
    """What memory of Python grew by while `rest` lasted: the places that took the most, with what they still hold."""
    before = tracemalloc.is_tracing()
    if not before:
        tracemalloc.start()
    try:
        first = await asyncio.to_thread(tracemalloc.take_snapshot)
        await rest()
        last = await asyncio.to_thread(tracemalloc.take_snapshot)
        traced, peak = tracemalloc.get_traced_memory()
    finally:
        if not before:
            tracemalloc.stop()
    differences = await asyncio.to_thread(last.compare_to, first, "lineno")
    places = [
        {
            "file": each.traceback[0].filename,
            "line": each.traceback[0].lineno,
            "bytes_more": each.size_diff,
            "blocks_more": each.count_diff,
            "bytes": each.size,
            "blocks": each.count,
        }
        for each in differences[:PLACES_MAX]
    ]
    return {"kind": "memory", "traced_bytes": traced, "peak_bytes": peak, "places": places}


def waiting(tasks: Iterable["asyncio.Task[Any]"]) -> dict[str, Any]:
    """Where tasks wait: those that wait at one place together, the most first."""
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    count = 0
    for task in tasks:
        count += 1
        counts[_waits(task.get_coro())] += 1
    sorts = [
        {"count": number, "coroutine": coroutine, "waits_at": list(places)}
        for (coroutine, places), number in counts.most_common(TASKS_MAX)
    ]
    return {"kind": "tasks", "tasks": count, "sorts": sorts}


def _waits(coroutine: Any) -> tuple[str, tuple[str, ...]]:
    """The name of a coroutine, and where it waits: from where it was begun to what it waits for at last."""
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    places: list[str] = []
    while coroutine is not None and len(places) < _TASK_DEPTH_MAX:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        places.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return name, tuple(places)
