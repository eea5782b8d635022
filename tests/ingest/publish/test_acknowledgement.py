"""Who hangs up is waited for no longer; what it published stays as it is."""

import asyncio
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from log_rig import running_log

from siltlog.infra import names
from siltlog.infra.errors import OutcomeUnknown
from siltlog.infra.http.connection.hang_up import HANG_UP, HangUp
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.security.grant import EVERYTHING, GRANT
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.wal.disk import Disk


class Heard(HangUp):
    """Notes how often somebody asked to hear of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def when(self, hear: Callable[[], None]) -> Callable[[], None]:
        self.asked += 1
        return super().when(hear)


BODY = b'{"records":[{"value":"v"},{"value":"w","partition":1}]}'


@pytest.mark.rule("P1")
@pytest.mark.parametrize(("acks", "when"), [("table", "as it waits"), ("table", "before"), ("wal", "before")])
def test_who_hangs_up_is_waited_for_no_longer_than_the_log_takes(tmp_path: Path, acks: str, when: str) -> None:
    async def received() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": BODY}

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 2, {})
            # Nothing of it is ever flushed.
            publish = Publish(Publishing(log, lambda: None, None), BodyReader(1_000_000), 1_000_000)
            hang_up = Heard()
            scope = {"type": "http", "method": "POST", "path": "/", "path_params": {"topic": "t"}}
            scope |= {"headers": [(b"content-type", names.MEDIA_JSON.encode())]}
            scope |= {"query_string": f"acks={acks}&timeout_ms=60000".encode()}
            scope |= {"state": {GRANT: EVERYTHING, HANG_UP: hang_up}}
            if when == "before":
                hang_up.told()
            asked = asyncio.create_task(publish(scope, received, send))
            async with asyncio.timeout(30):
                if when == "as it waits":
                    while not topic.partition(1).awaited:
                        await asyncio.sleep(0.01)
                    hang_up.told()
                if acks == "wal":
                    await asked
                    assert sent[0]["status"] == 200
                    # Nothing more was waited for.
                    assert hang_up.asked == 0
                    return
                with pytest.raises(OutcomeUnknown, match="acks=table was not reached") as ended:
                    await asked
            assert ended.value.members["acks"] == "wal"
            assert [log.bounds().high_watermark for log in topic.partitions] == [1, 1]
            assert not any(log.awaited for log in topic.partitions)

    asyncio.run(run())
