"""A job as a child process: its output goes to the log, it ends when it is told to, and nothing of it is left.

What it did is in `_jobs`; so its standard output is only for who looks closely, its standard error for everybody.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from siltlog.infra.redaction import redacted
from siltlog.infra.telemetry import Logger

LINES_MAX = 200
"""Lines of one run that are logged; the rest is counted."""
LINE_CHARS_MAX = 1_000
STOP_SECONDS = 5.0
"""How long a job may take to end once it is told to, before it is killed."""


class JobProcess:
    """Started at once, on a thread that lives for as long as the child: Linux ends a child with the thread that began
    it, where the child asks for that."""

    def __init__(
        self,
        job: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        logger: Logger,
        on_end: Callable[[], None],
    ) -> None:
        """`on_end` is called on that thread, once `status` is there."""
        self.job = job
        self.status: int | None = None
        """The exit status, negative for a signal; None while it runs, and 127 when it could not be started."""
        self.told_to_stop = False
        self.last_line = ""
        """The last line of its standard error: why it failed."""
        self._command = list(command)
        self._environment = dict(environment)
        self._logger = logger
        self._on_end = on_end
        self._pid: int | None = None
        self._reaping = threading.Lock()
        self._ended = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"job-{job}", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def stop(self) -> None:
        """Tells it to end, once: again would interrupt what it still has to end; does not wait."""
        with self._reaping:
            already, self.told_to_stop = self.told_to_stop, True
        if not already:
            self._signal(signal.SIGTERM)

    def join(self, seconds: float = STOP_SECONDS) -> None:
        """Waits so long, then kills it and all that it started."""
        if not self._ended.wait(seconds):
            self._signal(signal.SIGKILL, group=True)
            self._ended.wait(STOP_SECONDS)

    def _signal(self, number: int, *, group: bool = False) -> None:
        with self._reaping, suppress(ProcessLookupError):
            if self._pid is not None:
                (os.killpg if group else os.kill)(self._pid, number)

    def _run(self) -> None:
        status = 127
        try:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,  # Ctrl-C on a terminal is for the runner, which then ends its jobs
            )
            self._pid = child.pid
            self._started.set()
            readers = [self._reader(child.stdout, self._say_result), self._reader(child.stderr, self._say)]
            # While it is not reaped nobody else can have its number, nor that of its group.
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            self._signal(signal.SIGKILL, group=True)
            with self._reaping:
                status = child.wait()
                self._pid = None
            for reader in readers:
                reader.join()
        except OSError as error:
            self.last_line = str(error)
            self._logger.error("a job could not be started", job=self.job, reason=str(error))
        finally:
            self._started.set()
            self.status = status
            self._ended.set()
            self._on_end()

    def _reader(self, output: IO[bytes] | None, say: Callable[[str], None]) -> threading.Thread:
        assert output is not None
        reader = threading.Thread(target=self._read, args=(output, say), name=f"job-{self.job}-output", daemon=True)
        reader.start()
        return reader

    def _read(self, output: IO[bytes], say: Callable[[str], None]) -> None:
        lines = 0
        with output:
            while part := output.readline(LINE_CHARS_MAX):
                if text := part.decode("utf-8", "replace").rstrip():
                    lines += 1
                    if lines <= LINES_MAX:
                        say(text)
        if lines > LINES_MAX:
            self._logger.info("job said more", job=self.job, lines=lines - LINES_MAX)

    def _say_result(self, text: str) -> None:
        self._logger.debug("job result", job=self.job, line=text)

    def _say(self, text: str) -> None:
        self.last_line = redacted(text)
        self._logger.info("job says", job=self.job, line=text)
