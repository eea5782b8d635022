"""What a caller must have the right to once his body has come, too: it may be on its way for long."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from log_rig import running_log

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.security.grant import GRANT
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.wal.disk import Disk

MIB = 1024 * 1024


@pytest.mark.rule("A12")
@pytest.mark.parametrize("right", ["write", "create"])
def test_a_right_that_is_lost_while_the_body_comes_makes_no_topic(tmp_path: Path, right: str) -> None:
    lost: list[str] = []

    def require(asked: str, kind: str, name: str) -> None:
        if asked in lost:
            raise problem("forbidden", f"no right to {asked}")

    async def receive() -> dict[str, Any]:
        lost.append(right)
        return {"type": "http.request", "body": b'{"records": [{"value": "v"}]}'}

    async def send(message: Any) -> None:
        raise AssertionError(f"it is answered: {message}")

    grant = SimpleNamespace(identity=None, principal="p", require=require)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/topics/new/records",
        "path_params": {"topic": "new"},
        "headers": [(b"content-type", names.MEDIA_JSON.encode())],
        "query_string": b"",
        "state": {GRANT: grant},
    }

    async def test() -> None:
        async with running_log(tmp_path, Disk()) as (log, _):
            publishing = Publishing(log, lambda: None, cast(Any, SimpleNamespace()))
            publish = Publish(publishing, BodyReader(MIB), MIB)
            with pytest.raises(SiltlogError) as refused:
                await publish(cast(Any, scope), cast(Any, receive), cast(Any, send))
            assert (refused.value.error_code, refused.value.detail) == ("forbidden", f"no right to {right}")

    asyncio.run(asyncio.wait_for(test(), 30))
