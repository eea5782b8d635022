"""Interrupts of a thread, as Ctrl-C makes them, between any two steps of the consumer library, and a log to read under
them whose requests need no socket."""

import dis
import io
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import pyarrow as pa
from fake_server import FakeServer

from siltlog.infra import names
from siltlog.infra.client.core import Request, Response
from siltlog.infra.clock import parse_us
from siltlog.infra.errors import SiltlogError, problem_document

LIBRARY = Path(__file__).parents[2] / "consumers" / "library"
BEATS_S = 0.05
CHECKS_BEHIND = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE")
"""Instructions behind which the interpreter looks for signals."""

HANDED_OVER = ("return self._inbox.handed_over(record", "return self._inbox.handed_over(table", "return what")
"""Lines from which on nobody looks for signals up to the caller's frame."""

Trace = Callable[[FrameType, str, Any], Any]


class Interrupts:
    """Raises KeyboardInterrupt in the library's frames of this thread: after so many steps, and so many more.

    A step is where a function begins or goes on, a line, and what the interpreter looks for signals behind. The end of
    a `with` is one step: a lock of C is let go of, whatever comes.
    """

    def __init__(self, *steps: int) -> None:
        self._waits = list(steps)
        self._left = self._waits.pop(0) if steps else -1
        self.made = 0
        self.steps = 0
        self.places: list[str] = []

    @contextmanager
    def going_on(self) -> Iterator[None]:
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Trace | None:
        points = _points(frame.f_code)
        if points is None:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._step(frame)
        before = [-1]

        def on(frame: FrameType, event: str, _: Any) -> Trace:
            if event == "opcode":
                last, before[0] = before[0], frame.f_lasti
                if points.get(before[0]) or (last >= 0 and points.get(~last)):
                    self._step(frame)
            return on

        return on

    def _step(self, frame: FrameType) -> None:
        self.steps += 1
        self._left -= 1
        if self._left == 0:
            self.made += 1
            self._left = self._waits.pop(0) if self._waits else -1
            self.places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
            raise KeyboardInterrupt


_known: dict[CodeType, dict[int, bool] | None] = {}


def _points(code: CodeType) -> dict[int, bool] | None:
    """Steps of a function of the library: the offsets where a line begins, and, inverted, of what is looked behind."""
    if code not in _known:
        found: dict[int, bool] | None = None
        if LIBRARY in Path(code.co_filename).resolve().parents:
            found = {}
            for at in dis.get_instructions(code):
                line = at.positions.lineno if at.positions is not None else None
                text = linecache.getline(code.co_filename, line or 0).strip()
                if text.startswith(HANDED_OVER):
                    continue
                if at.starts_line and not text.startswith("with "):
                    found[at.offset] = True
                if at.opname in CHECKS_BEHIND:
                    found[~at.offset] = True
        _known[code] = found
    return _known[code]


class Log:
    """A transport: a log of one topic, `t`, and a group of one member."""

    def __init__(self, fake: FakeServer, handed_out: Callable[[int], int]) -> None:
        """`handed_out`: below what of a partition every record came."""
        self.committed = dict.fromkeys(range(len(fake.topics["t"].partitions)), 0)
        self.early: list[tuple[int, int]] = []
        """Commits of what had not come."""
        self._fake = fake
        self._handed_out = handed_out
        self._gone: set[str] = set()
        self._left = threading.Condition()

    def send(self, url: str, request: Request) -> Response:
        document = msgspec.json.decode(b"".join(request.body)) if request.body else {}
        try:
            answer = self._answer(request, document)
        except SiltlogError as error:
            return Response(error.status or 500, {}, msgspec.json.encode(problem_document(error, "r")))
        if isinstance(answer, pa.Table):
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, answer.schema) as writer:
                writer.write_table(answer)
            return Response(200, {"content-type": names.MEDIA_ARROW}, sink.getvalue())
        return Response(200, {"content-type": names.MEDIA_JSON}, msgspec.json.encode(answer))

    def close(self) -> None:
        pass

    def _answer(self, request: Request, document: Any) -> Any:
        path, _, query = request.path.partition("?")
        match request.method, *path.split("/")[2:]:
            case "POST", "fetch":
                with self._fake.changed:
                    return self._fake.fetch(document)
            case "GET", "topics", name, "offsets":
                # Without the lock of the fake, which the thread that is interrupted would leave locked.
                when = parse_us(query.partition("timestamp=")[2]) if "timestamp" in query else None
                return self._fake.offsets(name, when)
            case "PUT", "groups", _, "members", member:
                return self._beat(member, document)
            case "DELETE", "groups", _, "members", member:
                with self._left:
                    self._gone.add(member)
                    self._left.notify_all()
                return None
            case "PUT", "groups", _, "offsets":
                for one in document["offsets"]:
                    if one["offset"] > self._handed_out(one["partition"]):
                        self.early.append((one["partition"], one["offset"]))
                    self.committed[one["partition"]] = one["offset"]
                return None
            case "POST", "groups", _, "attempts":
                return {"attempts": 1, "spent": False}
        raise AssertionError(request)

    def _beat(self, member: str, document: Any) -> Any:
        joins = document["generation"] < 1
        if not joins:
            with self._left:
                self._left.wait_for(lambda: member in self._gone, min(document["wait_ms"] / 1000, BEATS_S))
        places = [{"topic": "t", "partition": p, "offset": offset} for p, offset in self.committed.items()]
        return {"generation": 1, "assignment": places if joins else None, "heartbeat_interval_ms": 1}
