"""Fixtures that tests of several rooms share. What stands in `rigs/` can be imported by every test."""

import asyncio
import gc
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any

import hypothesis
import pytest
import redis
import uvloop
from botocore.loaders import JSONFileLoader
from chaos import CHAOS
from forked import EXECUTE, ForkServers, executing
from groups_rig import embedded
from http_rig import NO_REDIS, Http
from ports import with_port
from rewritten import write_share
from s3_server import S3Server, start_s3_server
from scheduling import FilesAtOnce, heavy_first
from spark_python import fast_workers

from siltlog import server_process
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

GC_THRESHOLD = 50_000
"""So many more objects are made than freed before garbage is looked for."""

OF_SERVERS = tuple(Path(__file__).parent / room for room in ("infra", "ingest", "siltlog/server"))
"""The tests of rooms whose code servers run."""

hypothesis.settings.register_profile("siltlog", deadline=None)
hypothesis.settings.load_profile("siltlog")

# A store has a session of boto3 of its own, and each session would parse the same megabytes of JSON once more.
_model_of = cache(JSONFileLoader().load_file)
JSONFileLoader.load_file = lambda _, path: _model_of(path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAtOnce | None:
    return FilesAtOnce(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    write_share(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking through it for garbage takes a fifth of the time, then and in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("-m") or ""
    left = {} if "client" in chosen else {"client": "make test-clients does it"}
    if not chosen and config.args == config.getini("testpaths"):
        left["slow"] = "make test-slow does it"
    for mark, reason in left.items():
        for item in items:
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))
    heavy_first(items)


@pytest.fixture(scope="session", autouse=True)
def _fork_servers() -> Iterator[None]:
    """Forks what a ServerProcess starts; `make test-chaos` starts each as it is elsewhere."""
    if CHAOS > 1 or not hasattr(os, "pidfd_open"):
        with executing():
            yield
        return
    forks = ForkServers()

    def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[bytes]) -> Any:
        environment = with_port(environment)
        return forks.fork(arguments, folder, environment, log.fileno()) or EXECUTE(arguments, folder, environment, log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_process, "_run", run)
        yield
    forks.close()


@pytest.fixture(scope="module", autouse=True)
def _loop_of_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """What servers run is tested on the loop by which they run it, whose handles and timers are not asyncio's."""
    if not any(request.path.is_relative_to(room) for room in OF_SERVERS):
        yield
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


@pytest.fixture
def executed() -> Iterator[None]:
    """The servers that a test starts have an interpreter of their own, for tests of what is in their memory."""
    with executing():
        yield


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


MIB = 1024 * 1024


@pytest.fixture
def processes_in() -> Callable[[Path], list[str]]:
    """Gives the command lines of the processes whose working directory is in a folder."""

    def look(folder: Path) -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(folder):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    return look


@pytest.fixture(scope="session")
def small_server() -> Iterator[ServerProcess]:
    """A server without groups whose limits are small; its topics are the tests' own by their names."""
    with running_server(
        redis_url=NO_REDIS,
        flush_ms=50,
        request_bytes_max=MIB,
        record_bytes_max=100_000,
        # Longer than a busy machine keeps a client from sending the rest of what it began.
        request_timeout_ms=3_000,
        cors_origins="https://app.example, https://other.example",
        hosts="silt.example, silt2.example",
        log_level="info",
    ) as server:
        yield server


@pytest.fixture(scope="session")
def http(small_server: ServerProcess) -> Http:
    return Http(small_server.url)


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Valkey for every test of groups; each empties it first. It waits for no disk."""
    valkey = embedded(Path(tmp_path_factory.mktemp("groups")))
    url = valkey.start()
    with redis.Redis.from_url(url) as client:
        client.config_set("appendfsync", "no")
    yield url
    valkey.stop()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """A store on a disk; its root has what trips names of files: a space and a glob."""
    return open_store((tmp_path / "the lake [1]").as_uri())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from siltlog.pipelines.spark.jars import S3A, resolve
    from siltlog.pipelines.spark.session import spark_session

    resolve(S3A)
    store = open_store(tmp_path_factory.mktemp("spark").as_uri())
    with ExitStack() as stack:
        with fast_workers():
            session = stack.enter_context(spark_session(store))
        yield session
