"""Waits until a publish may be answered: its records have reached the acks asked for, or its time is over."""

import asyncio
from collections.abc import Callable

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.ingest.log.log import Appended
from siltlog.ingest.log.topic import TopicLog

Wait = asyncio.Future[None]


async def acknowledged(
    topic: TopicLog,
    appended: Appended,
    acks: str,
    timeout_seconds: float,
    wake_flusher: Callable[[], None],
    hang_up: HangUp | None = None,
) -> None:
    """Returns once `acks` is met for every record. Raises OutcomeUnknown `ack_timeout` with what was reached, also once
    the client has hung up that waits for more than the WAL."""
    reached = "none"
    is_over = False
    future = appended.durable if appended.written is None else appended.written
    waits: list[Wait] = []

    def expire() -> None:
        nonlocal is_over
        is_over = True
        _expire(future, late(topic, acks, reached))

    timer = asyncio.get_running_loop().call_later(timeout_seconds, expire)
    forget: Callable[[], None] | None = None

    def in_time(future: Wait) -> Wait:
        # It may have ended between one wait and the next.
        if is_over:
            _expire(future, late(topic, acks, reached))
        return future

    try:
        await future
        if topic.availability.lasting:
            # It is on this disk, but another node owns the topic by now, or it has ended: nobody may rely on it, nor
            # wait for its table.
            raise topic.gone()
        if acks == "written":
            # What of it is a retry lies in an entry that is written, too: groups go one after the other.
            return
        waits += [wait for log, end in appended.ends if (wait := log.when_synced(end)) is not None]
        for future in waits:
            await in_time(future)
        reached = "wal"
        if hang_up is not None and acks in ("object", "table"):
            # The journal and the table may take long, and nobody would hear of them.
            forget = hang_up.when(expire)
        if acks == "object":
            waits += [wait for log, end in appended.ends if (wait := log.when_shown(end)) is not None]
            for future in waits:
                await in_time(future)
        elif acks == "table":
            waits += [wait for log, end in appended.ends if (wait := log.when_in_table(end)) is not None]
            wake_flusher()
            for future in waits:
                await in_time(future)
    finally:
        timer.cancel()
        if forget is not None:
            forget()
        for wait in waits:
            if not wait.cancel() and not wait.cancelled():
                # Failed with the others; one of them was raised.
                wait.exception()


def _expire(future: Wait, error: SiltlogError) -> None:
    if not future.done():
        future.set_exception(error)


def late(topic: TopicLog, acks: str, reached: str) -> SiltlogError:
    """The answer to a publish whose time is over."""
    return problem(
        "ack_timeout",
        f"acks={acks} was not reached in time for topic {topic.name}; the records may still land. Repeat the "
        "request only with a producer id or an idempotency key",
        acks=reached,
    )
