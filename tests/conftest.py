"""Fixtures that tests of several rooms share. What stands beside this file can be imported by every test."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from s3_server import S3Server, start_s3_server

hypothesis.settings.register_profile("siltlog", deadline=None)
hypothesis.settings.load_profile("siltlog")


@pytest.fixture(scope="session")
def _s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = start_s3_server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def s3_server(_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A real S3 server on loopback; its keys are in the environment, where boto3's chain finds them."""
    for name, value in _s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return _s3_server


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are, for this process and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder
