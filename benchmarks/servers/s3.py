"""An S3 server of a benchmark's own, on loopback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.s3_server import S3Server, start_s3_server


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Runs an S3 server with its data in `folder`, which is made; what is started in the block has its keys."""
    folder.mkdir()
    server = start_s3_server(folder)
    before = dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield server
    finally:
        server.stop()
        for name in server.environment():
            os.environ.pop(name)
        os.environ.update(before)
