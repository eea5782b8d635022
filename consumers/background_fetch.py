"""One fetch at a time on a thread of its own, so that the consumer's thread can be woken while it waits."""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from siltlog.consumers.positions import PartitionState
from siltlog.infra import names
from siltlog.infra.client.core import json_request
from siltlog.infra.client.transport import Caller
from siltlog.infra.errors import OutcomeUnknown, SiltlogError

GRACE_MS = 10_000
Asked = Sequence[tuple[PartitionState, int]]
_log = logging.getLogger("siltlog.consumer")


class BackgroundFetch:
    """`news` is notified when a reply, or the error in its place, is there to be taken."""

    def __init__(self, caller: Caller, news: threading.Condition, options: dict[str, Any]) -> None:
        self._caller = caller
        self._changed = news
        self._options = options
        self._asked: Asked | None = None
        self._topic_ids: Mapping[str, str] = {}
        self._result: pa.Table | SiltlogError | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        return self._result is not None

    @property
    def idle(self) -> bool:
        return self._asked is None

    def start(self, asked: Asked, topic_ids: Mapping[str, str]) -> None:
        """Only when idle. A topic of `topic_ids` must still be that one."""
        with self._changed:
            self._asked = asked
            self._topic_ids = topic_ids
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="siltlog-fetch", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self) -> tuple[Asked, pa.Table | SiltlogError]:
        """Only when ready; then it is idle."""
        with self._changed:
            asked, result = self._asked, self._result
            self._asked = self._result = None
        assert asked is not None and result is not None
        return asked, result

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (self._asked is None or self._result is not None):
                    self._changed.wait()
                if self._stopped:
                    return
                asked = self._asked
            assert asked is not None
            try:
                result = self._fetch(asked)
            except SiltlogError as error:
                result = error
            except Exception as error:
                _log.exception("a fetch failed")
                result = OutcomeUnknown(f"the reply to a fetch is not understood: {error!r}", error_code="internal")
            with self._changed:
                self._result = result
                self._changed.notify_all()

    def _fetch(self, asked: Asked) -> pa.Table | SiltlogError:
        document = {
            "partitions": [
                {"topic": state.at.topic, "partition": state.at.partition, "offset": offset}
                | ({"topic_id": self._topic_ids[state.at.topic]} if state.at.topic in self._topic_ids else {})
                for state, offset in asked
            ],
            **self._options,
        }
        request = json_request(
            "POST",
            "/v1/fetch",
            document,
            accept=names.MEDIA_ARROW,
            read_timeout_ms=self._options["wait_ms"] + GRACE_MS,
            repeatable=True,
        )
        body = self._caller.call(request).body
        return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
