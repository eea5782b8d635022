"""One publish of the fast path and its reply, from the parser to the socket."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from siltlog.infra.http.log.access_log import LOCAL_ADDRESS, AccessLog
from siltlog.infra.http.memory import SMALL_BYTES, Held
from siltlog.infra.http.operations import operations_of
from siltlog.infra.http.requests import problem_reply
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.publish.callers import Remembered
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.publishing import Published
from siltlog.ingest.publish.reply import publish_reply

if TYPE_CHECKING:
    from siltlog.ingest.publish.fast import Asked, FastPublishes

_PUBLISH = operations_of(Publish)[0].operation_id
_ANSWERED = (_PUBLISH, 200)


class Exchange:
    """One request and its reply. To uvicorn it is the `cycle` of its connection."""

    __slots__ = (
        "_all",
        "_connection",
        "_headers",
        "_held",
        "_media",
        "_nbytes",
        "_path",
        "_published",
        "_request_id",
        "asked",
        "body",
        "deadline",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "scope",
        "topic",
    )

    def __init__(
        self,
        publishes: "FastPublishes",
        connection: Any,
        topic: TopicLog,
        media: str,
        headers: Mapping[str, str],
        asked: "Asked",
        request_id: str = "",
    ) -> None:
        self.topic = topic
        self.scope = connection.scope
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self.more_body = False
        self.body = b""
        self.message_event = _NO_EVENT
        self.deadline = connection.loop.time() + asked.timeout_ms / 1000
        self.asked = asked
        self._nbytes = 0
        self._all = publishes
        self._connection = connection
        self._media = media
        self._headers = headers
        self._path = connection.url
        self._held: Held
        self._published: Published
        self._request_id = request_id

    def suits(self, content: bytes) -> bool:
        return self._all.suits(self._media, content)

    def begin(self, content: bytes) -> None:
        """The whole request is here: appends it. Never raises."""
        publishes = self._all
        self._nbytes = len(content)
        if not self._request_id:
            self._request_id = publishes.door.next_request_id()
        self._held = publishes.in_flight.hold()
        publishes.begun(self)
        guard = publishes.door.guard
        if guard is not None and guard.quotas.any:
            refusal = publishes.callers.refusal(self._connection.remembered, self.topic.name, len(content))
            if refusal is not None:
                self.refuse(refusal)
                return
        try:
            self._held.take(len(content))
        except Exception as error:
            self.refuse(error)
            return
        try:
            remembered = self._connection.remembered
            self._published = publishes.append(
                self.topic, self._media, content, self._headers, self.asked.partition, remembered, self.asked.acks
            )
        except Exception as error:
            self._refuse_once_told(error)
            return
        if len(content) > SMALL_BYTES:
            # From here on the log counts what it keeps of it; of a small one that is not worth a call.
            self._held.release()
        appended = self._published.appended
        (appended.durable if appended.written is None else appended.written).add_done_callback(self._durable)

    def _durable(self, future: asyncio.Future[None]) -> None:
        if self.response_complete:
            return
        publishes = self._all
        if publishes.draining.begun:
            self.keep_alive = False
        try:
            future.result()
            wait = self._published.waits_for()
            if wait is not None:
                wait.add_done_callback(self._durable)
                return
            document = publish_reply(publishes.publishing.durable(self._published)).body
        except Exception as error:
            self.refuse(error)
            return
        replies = publishes.door.replies
        replies[_ANSWERED] = replies.get(_ANSWERED, 0) + 1
        end = b"\r\n" if self.keep_alive else b"\r\nconnection: close\r\n"
        id_line = b"\r\nsilt-request-id: " + self._request_id.encode()
        self._end(b"".join((publishes.head(self._connection), b"%d" % len(document), id_line, end, b"\r\n", document)))
        if publishes.slow_log is not None:
            self._log(publishes.slow_log, 200, len(document))

    def _refuse_once_told(self, error: Exception) -> None:
        publishing = self._all.publishing
        durable = publishing.told_once(error)
        if durable is None:
            self.refuse(error)
            return
        self._all.during(self._refuse_once_kept(durable, error))

    async def _refuse_once_kept(self, durable: asyncio.Future[None], error: Exception) -> None:
        try:
            await self._all.publishing.kept(self.topic, durable, self.asked.timeout_ms)
        except Exception as failed:
            self._told(failed)
        else:
            self._told(error)

    def _told(self, error: Exception) -> None:
        if self.response_complete:
            return
        if self._all.draining.begun:
            self.keep_alive = False
        self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Answers with a problem document."""
        door = self._all.door
        refusal = door.refusal(error, "POST", self._path.decode("latin-1"), self._request_id)
        reply: Response = problem_reply(refusal, self._request_id)
        door.count_reply(_PUBLISH, reply.status_code)
        headers = [*self._connection.server_state.default_headers, *reply.raw_headers]
        headers.append((b"silt-request-id", self._request_id.encode()))
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        self._end(STATUS_LINE[reply.status_code] + header_lines(headers) + b"\r\n" + bytes(reply.body))
        if door.access_log is not None:
            self._log(door.access_log, reply.status_code, len(reply.body), error_code=refusal.error_code)

    def _log(self, log: AccessLog, status: int, bytes_out: int, **told: str) -> None:
        seconds = self._connection.loop.time() - self.deadline + self.asked.timeout_ms / 1000
        if not log.wants(status, seconds):
            return
        remembered: Remembered | None = self._connection.remembered
        if remembered is not None:
            told["principal"] = remembered.identity.subject.principal
        log.tell(
            status,
            self._path.partition(b"?")[0],
            seconds,
            request_id=self._request_id,
            operation=_PUBLISH,
            topic=self.topic.name,
            method="POST",
            bytes_in=self._nbytes,
            bytes_out=bytes_out,
            address=self._connection.peer.address or LOCAL_ADDRESS,
            **told,
        )

    def _end(self, reply: bytes) -> None:
        connection = self._connection
        self.response_complete = True
        self._held.release()
        self._all.ended(self)
        if self.disconnected:
            return
        connection.transport.write(reply)
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


class _NoEvent:
    """An event nobody waits for: a request that is whole has no more to come."""

    def set(self) -> None:
        pass


_NO_EVENT = _NoEvent()


def header_lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)
