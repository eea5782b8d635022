from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltlog.infra.store import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """On a disk; its root has what trips names of files: a space and a glob."""
    return open_store((tmp_path / "the lake [1]").as_uri())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from siltlog.pipelines.jars import S3A, resolve
    from siltlog.pipelines.session import spark_session

    resolve(S3A)
    with spark_session(open_store(tmp_path_factory.mktemp("spark").as_uri())) as session:
        yield session
