"""The contract of an object store, on a local disk and on a real S3 server."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from s3_server import S3Server

from siltlog.infra.errors import ConfigError, Unavailable
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.local import LocalStore, translated
from siltlog.infra.store.s3 import S3Store
from siltlog.infra.store.store import COPY_BYTES, ObjectStore, Put, open_store


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store((tmp_path / "a lake").as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"contract/{tmp_path.name}"), s3_endpoint=server.endpoint)


def test_objects_come_back_as_they_were_put(store: ObjectStore) -> None:
    store.put("a/b/one", b"first")
    store.put("a/b/one", memoryview(b"second"))
    store.put("a/two", pa.py_buffer(b"third"))
    store.sync(["a/b/one", "a/two"])
    assert store.get("a/b/one") == b"second"
    assert store.get("a/two") == b"third"
    assert store.size("a/b/one") == 6
    info = store.info("a/two")
    assert info is not None and (info.path, info.size) == ("a/two", 5) and info.modified_ms > 1_700_000_000_000
    assert store.sizes(["a/two", "a/none", "a/b/one"]) == [5, None, 6]


def test_what_is_copied_is_there_whole_or_not_at_all(store: ObjectStore) -> None:
    content = os.urandom(2 * COPY_BYTES + 12_345)
    store.put("from", content)
    for path in ("a/copy", "a/copy"):
        with store.open("from") as source:
            store.put_from(path, source)
        assert store.get(path) == content and store.size(path) == len(content)
    with store.open("from") as source:
        source.seek(len(content) - 10)
        store.put_from("a/rest", source)
    assert store.get("a/rest") == content[-10:]
    with pytest.raises(ValueError, match="closed"):
        store.put_from("a/none", source)
    assert [info.path for info in store.list("a")] == ["a/copy", "a/rest"] and not store.unfinished("a")


def test_absent_objects(store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("none")
    with pytest.raises(FileNotFoundError):
        store.open("none")
    assert store.size("none") is None
    assert store.info("none/below") is None
    assert store.list("none") == []
    assert store.folders("none") == []
    store.delete("none")


def test_listing_is_recursive_and_folders_are_not(store: ObjectStore) -> None:
    for path in ("t/x/1", "t/x/2", "t/y/z/3", "t/4", "tx/5"):
        store.put(path, path.encode())
    assert [(info.path, info.size) for info in store.list("t")] == [
        ("t/4", 3),
        ("t/x/1", 5),
        ("t/x/2", 5),
        ("t/y/z/3", 7),
    ]
    assert store.folders("t") == ["x", "y"]
    assert store.folders("") == ["t", "tx"]
    store.delete("t/x/1")
    assert [info.path for info in store.list("t/x")] == ["t/x/2"]


def test_put_if_absent_has_one_winner(store: ObjectStore) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def race(number: int) -> None:
        barrier.wait()
        if store.put_if_absent("race/slot", str(number).encode()) is Put.WRITTEN:
            won.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("race/slot") == str(won[0]).encode()
    assert store.put_if_absent("race/slot", b"late") is Put.EXISTS
    assert [info.path for info in store.list("race")] == ["race/slot"]


def test_random_access(store: ObjectStore) -> None:
    content = bytes(range(256)) * 1000
    store.put("big", content)
    with store.open("big") as source:
        assert source.size() == len(content)
        assert source.read_at(100, 70_000) == content[70_000:70_100]
        assert source.read_at(10, len(content) - 10) == content[-10:]


def test_cluster_id_is_made_once(store: ObjectStore) -> None:
    first = cluster_id(store)
    assert cluster_id(store) == first
    store.delete("cluster/id")
    store.put("cluster/id", b"\0\0\0")
    with pytest.raises(ConfigError, match="cluster/id"):
        cluster_id(store)


def test_uris(tmp_path: Path) -> None:
    local = open_store(tmp_path.as_uri())
    assert local.uri("topics/t") == f"{tmp_path.as_uri()}/topics/t" == local.uri("topics/t", "s3a")
    assert local.storage_options() == {}


@pytest.mark.parametrize("root", ["", "relative", "http://host/x", "s3://", "file:", "s3:/bucket"])
def test_what_is_no_location_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="not a location"):
        open_store(root)


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be made"):
        open_store((tmp_path / "file" / "root").as_uri())


def test_sync_reaches_files_and_every_folder_up_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path / "root"))
    for number in range(20):
        store.put(f"a/p={number}/x", b"")
    synced: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    store.sync(f"a/p={number}/x" for number in range(20))
    root = tmp_path / "root"
    expected = [
        root,
        root / "a",
        *(root / "a" / f"p={n}" for n in range(20)),
        *(root / "a" / f"p={n}" / "x" for n in range(20)),
    ]
    assert sorted(synced) == sorted(str(path) for path in expected)
    files, folders = synced[:20], synced[20:]
    assert all(path.endswith("/x") for path in files) and not any(path.endswith("/x") for path in folders)


def test_what_is_being_written_is_not_listed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a/x", b"1")
    (tmp_path / "a" / ".pending-1").write_bytes(b"half")
    assert [info.path for info in store.list("a")] == ["a/x"]


def test_a_full_disk_is_named() -> None:
    with (
        pytest.raises(Unavailable, match="topics/t/x") as caught,
        translated("topics/t/x"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert (caught.value.error_code, caught.value.status) == ("disk_full", 507)


@pytest.mark.parametrize("path", ["x", "new/folder/x"])
@pytest.mark.parametrize("way", ["put", "put_if_absent", "put_from"])
def test_a_disk_that_fills_keeps_nothing_of_what_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, path: str
) -> None:
    store = LocalStore(str(tmp_path / "root"))
    opened = Path.open

    def opened_full(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        opened(self, mode, *args, **options).close()
        return opened(Path("/dev/full"), mode, *args, **options)

    monkeypatch.setattr(Path, "open", opened_full)
    written = os.write
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(os, "write", lambda _, data: written(full, data))
    content: Any = pa.BufferReader(b"x" * 100_000) if way == "put_from" else b"x" * 100_000
    with pytest.raises(Unavailable, match=path) as caught:
        getattr(store, way)(path, content)
    assert caught.value.error_code == "disk_full"
    monkeypatch.undo()
    os.close(full)
    assert not store.unfinished("") and not store.list("")


def test_a_disk_that_refuses_is_unavailable(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"")
    with pytest.raises(Unavailable, match="a/b"):
        store.put("a/b", b"")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Store, Stubber]]:
    """An S3 store whose server answers what the test says."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = S3Store("bucket", "prefix", endpoint="http://127.0.0.1:1", region="eu-central-1")
    with Stubber(store._client) as stubber:
        yield store, stubber


def test_refusals_of_s3_are_unavailable(refusing: tuple[S3Store, Stubber]) -> None:
    store, stubber = refusing
    for code, status in (("SlowDown", 503), ("InternalError", 500), ("NoSuchBucket", 404)):
        stubber.add_client_error("get_object", code, "a reason", status)
        with pytest.raises(Unavailable, match=f"topics/t: {code} a reason") as caught:
            store.get("topics/t")
        assert caught.value.error_code == "topic_unavailable"
    stubber.add_client_error("get_object", "AccessDenied", "a reason", 403)
    denied = r"s3:GetObject on s3://bucket/prefix/topics/t \(AccessDenied a reason\)"
    with pytest.raises(Unavailable, match=denied) as caught:
        store.get("topics/t")
    assert (caught.value.error_code, caught.value.retryable) == ("store_denied", "no")
    with Stubber(store._once) as once:
        once.add_client_error("put_object", "AccessDenied", "a reason", 403)
        with pytest.raises(Unavailable, match="s3:PutObject on s3://bucket/prefix/a"):
            store.put_if_absent("a", b"")


def test_a_head_that_s3_refuses_is_told_by_its_reason(refusing: tuple[S3Store, Stubber]) -> None:
    store, stubber = refusing
    for code, error_code, said in (
        ("RequestTimeTooSkewed", "topic_unavailable", "set the clock of this machine"),
        ("SlowDown", "topic_unavailable", "S3 refused a: SlowDown"),
        ("AccessDenied", "store_denied", r"s3:GetObject on s3://bucket/prefix/a \(AccessDenied"),
    ):
        stubber.add_client_error("head_object", "403", "Forbidden", 403)
        stubber.add_client_error("get_object", code, "a reason", 403)
        with pytest.raises(Unavailable, match=said) as caught:
            store.size("a")
        assert caught.value.error_code == error_code


def test_an_s3_that_is_down_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("siltlog.infra.store.s3.ATTEMPTS_MAX", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        store = S3Store("bucket", "", endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            store.open("a")


def test_a_machine_without_keys_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="set AWS_ACCESS_KEY_ID"):
        S3Store("bucket", "", endpoint="http://127.0.0.1:1").list("topics")


@mock_aws
def test_against_moto(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store("bucket", "", region="us-east-1")
    with pytest.raises(Unavailable, match="NoSuchBucket"):
        store.put("a", b"")
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
    assert store.put_if_absent("a", b"1") is Put.WRITTEN
    assert store.put_if_absent("a", b"1") is Put.EXISTS
    with pytest.raises(FileNotFoundError):
        store.get("b")
    assert store.uri("a/b") == "s3://bucket/a/b"
    assert store.uri("a/b", "s3a") == "s3a://bucket/a/b"


def test_what_deltalake_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    options = S3Store("bucket", "", endpoint="http://127.0.0.1:1", region="eu-central-1").storage_options()
    assert options["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert options["AWS_ALLOW_HTTP"] == "true"
    assert options["AWS_REGION"] == "eu-central-1"
    assert (options["AWS_ACCESS_KEY_ID"], options["AWS_SECRET_ACCESS_KEY"]) == ("key", "secret")
