"""A server of one's own: it starts, survives being killed, and leaves nothing behind."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.errors import ConfigError
from siltlog.ingest.library.producer import Producer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

pytestmark = pytest.mark.usefixtures("executed")
ProcessesIn = Callable[[Path], list[str]]


@pytest.mark.slow
def test_a_killed_server_comes_back_where_it_was_with_everything(processes_in: ProcessesIn) -> None:
    with running_server(flush_ms=100) as server, Admin(server.url) as admin:
        admin.create_topic("events", partitions=2)
        with Producer(server.url) as producer:
            first = producer.send("events", "before").result()
            url, pid = server.url, server.pid
            server.kill()
            assert not server.running
            server.restart()
            assert (server.url, server.running) == (url, True)
            assert server.pid != pid
            producer.send("events", "after", partition=first.partition)
        bounds = admin.offsets("events")[first.partition]
        assert bounds["high_watermark"] == 2
        assert server.root == (server.data_dir / names.LAKE_FOLDER).as_uri()
        data_dir = server.data_dir
        assert processes_in(data_dir)
    assert not data_dir.exists()
    assert processes_in(data_dir) == []


@pytest.mark.slow
def test_a_server_that_was_killed_for_good_leaves_no_process(tmp_path: Path, processes_in: ProcessesIn) -> None:
    with running_server(data_dir=tmp_path / "data") as server:
        server.kill()
        # The number of one that has ended may be another's.
        server.kill()
        assert any("valkey" in command for command in processes_in(tmp_path)), "this test is to see it stopped"
    assert processes_in(tmp_path) == []
    assert (tmp_path / "data").exists()


def test_a_start_that_fails_says_why_in_the_servers_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SILT_FLUSH_MS='soon' is not valid"), running_server(flush_ms="soon"):
        raise AssertionError("it started")
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ConfigError, match="exit status"):
        ServerProcess(tmp_path / "data", {"data_dir": blocked, "root": "nonsense"}).start()


def test_settings_around_it_do_not_reach_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SILT_PORT", "not a port")
    monkeypatch.chdir(tmp_path)
    (tmp_path / names.CONFIG_FILE).write_text("port = 'nor this'\n")
    with running_server() as server:
        assert server.url.startswith("http://127.0.0.1:")
    assert os.environ["SILT_PORT"] == "not a port"


@pytest.mark.slow
def test_the_fixture_comes_with_the_package(siltlog_server: ServerProcess) -> None:
    with Admin(siltlog_server.url) as admin:
        assert admin.topics() == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what a process has mapped")
def test_a_server_never_imports_pandas(tmp_path: Path) -> None:
    """Its import takes a second of the first publish. pyarrow wants it wherever it is installed, as it is here."""
    assert find_spec("pandas") is not None
    with running_server(data_dir=tmp_path, flush_ms=20) as server, Producer(server.url, acks="table") as producer:
        with Admin(server.url) as admin:
            admin.create_topic("t")
        producer.send("t", {"a": 1}).result()
        with Consumer(server.url, group="g", topics=["t"]) as consumer:
            assert consumer.poll(timeout_ms=60_000)
        mapped = Path(f"/proc/{server.pid}/maps").read_text()
        assert "pyarrow" in mapped and "/pandas/" not in mapped
