"""Structured logs: the one place that makes lines, for people or as JSON."""

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog

from siltlog.infra.log_events import BY_SENTENCE, LIBRARY, UNCAUGHT, UNNAMED
from siltlog.infra.redaction import HidingFormatter, Redaction, hide_in_others

LogFormat = Literal["console", "json"]
Logger = Any
"""structlog's bound logger: `logger.info("event in words", name=value, ...)`."""
REQUEST: ContextVar[Callable[[], Mapping[str, Any]] | None] = ContextVar("request", default=None)
"""Gives the fields of the request that is under way, for the lines that are written on its account."""
_FIRST = (
    *("time", "level", "event", "action", "message"),
    *("request_id", "principal", "operation", "topic", "node", "trace_id"),
)
"""The fields of a JSON line that any may have, in their order."""
_LEVELS = logging.getLevelNamesMapping()
_ACTION_LEVELS = ("warning", "error", "critical")
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class LogOutput:
    """What becomes of log lines: which are written, and how. They go to stderr."""

    def __init__(
        self,
        level: str,
        log_format: LogFormat,
        hide: Redaction | None = None,
        *,
        node: str = "",
        trace_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`hide` takes out of every line what must not be read. JSON says which `node` speaks, and every line which
        trace is current, if any."""
        self.hide = hide or Redaction()
        self._node = node
        self._trace_id = trace_id
        self.reconfigure(level, log_format)

    def reconfigure(self, level: str, log_format: LogFormat) -> None:
        """The next line is written so, or not at all."""
        self._least = _LEVELS[level.upper()]
        self.is_json = log_format == "json"
        self._renderer: Any = (
            _as_json
            if self.is_json
            # The formatter that it takes where rich is installed shows the values of local variables.
            else structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )

    def speaks_for(self, node: str) -> None:
        """The node that lines are of has been given that name."""
        self._node = node

    def logger(self) -> Logger:
        """A logger of which every line comes here."""
        return structlog.wrap_logger(
            structlog.WriteLogger(cast(TextIO, _Lenient(sys.stderr))),
            processors=[self._wanted, structlog.processors.add_log_level, self._in_context, self._rendered],
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
            cache_logger_on_first_use=True,
        )

    def _wanted(self, _: Any, method: str, line: Any) -> Any:
        if _LEVELS[method.upper()] < self._least:
            raise structlog.DropEvent
        return line

    def _in_context(self, _: Any, __: str, line: Any) -> Any:
        told = REQUEST.get()
        if told is not None:
            for name, value in told().items():
                line.setdefault(name, value)
        if (trace_id := self._trace_id()) is not None:
            line["trace_id"] = trace_id
        if self.is_json and self._node:
            line.setdefault("node", self._node)
        found = BY_SENTENCE.get(line["event"])
        if found is not None and found.action and line["level"] in _ACTION_LEVELS:
            line["action"] = found.action
        return line

    def _rendered(self, logger: Any, method: str, line: Any) -> str:
        if self.is_json:
            line = _TIME(logger, method, structlog.processors.format_exc_info(logger, method, line))
        else:
            line = _TIMESTAMP(logger, method, line)
        return self.hide(self._renderer(logger, method, line))


class _Lenient:
    """Where lines go: one that cannot be written, as on a full disk, is let go, and who logged it goes on."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


_TIME = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
_TIMESTAMP = structlog.processors.TimeStamper(fmt="iso", utc=True)


def logger(level: str, log_format: LogFormat, hide: Redaction | None = None) -> Logger:
    """The logger of a process whose level and format stay as they are."""
    return LogOutput(level, log_format, hide).logger()


def hear_others(output: LogOutput) -> None:
    """Has what libraries log, warnings and worse, and errors that nobody caught come out as lines of JSON where the
    output is that."""
    hide_in_others(output.hide)
    log = output.logger()
    logging.basicConfig(handlers=[_Library(output, log)], force=True)
    tell, tell_of_thread = sys.excepthook, threading.excepthook

    def uncaught(kind: type[BaseException], error: BaseException | None, place: Any) -> None:
        if output.is_json:
            log.critical(UNCAUGHT, exc_info=(kind, error, place))
        else:
            tell(kind, error or kind(), place)

    def uncaught_of_thread(told: threading.ExceptHookArgs) -> None:
        if not output.is_json:
            tell_of_thread(told)
        elif told.exc_type is not SystemExit:
            log.critical(UNCAUGHT, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))

    sys.excepthook = uncaught
    threading.excepthook = uncaught_of_thread


class _Library(logging.StreamHandler[Any]):
    """Writes what libraries log."""

    def __init__(self, output: LogOutput, log: Logger) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(HidingFormatter("%(message)s", output.hide))
        self._output = output
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if not self._output.is_json:
            super().emit(record)
            return
        try:
            said = record.getMessage()
        except Exception:
            said = str(record.msg)
        values: dict[str, Any] = {"logger": record.name, "said": said}
        if record.exc_info:
            values["exc_info"] = record.exc_info
        self._log.log(record.levelno, LIBRARY, **values)


def _as_json(_: Any, __: str, line: Any) -> str:
    sentence = line["event"]
    found = BY_SENTENCE.get(sentence)
    if found is not None:
        line["event"], line["message"] = found.name, sentence
    elif sentence not in (LIBRARY, UNCAUGHT):
        line["event"], line["message"] = UNNAMED, sentence
    ordered = {name: line.pop(name) for name in _FIRST if name in line}
    ordered.update(line)
    try:
        return _ENCODER.encode(ordered).decode()
    except (TypeError, UnicodeEncodeError):
        # A name of a file that is no UTF-8, or a key that is no text.
        return json.dumps(ordered, default=str, skipkeys=True)
