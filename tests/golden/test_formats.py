"""A format that is newer than this release: servers refuse it before they change anything, and say what to do."""

from pathlib import Path

import msgspec
import pytest
from golden_rig import FIXTURES, NODES, SECRET, Kind, standing, unpacked

import siltlog
from siltlog.infra import names
from siltlog.infra.cluster.view import FORMAT as CLUSTER_FORMAT
from siltlog.infra.errors import ConfigError
from siltlog.infra.security import document
from siltlog.infra.security.secret import PURPOSE_ACCESS, read_secret
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.ingest.wal import codec

pytestmark = pytest.mark.slow


def refusal(folder: Path, kind: Kind) -> str:
    """What the first server says that is started there; nothing below its root or in its log is another than before."""
    kept = contents(folder)
    with pytest.raises(ConfigError) as refused, standing(folder, kind):
        pass
    assert contents(folder) == kept
    return str(refused.value)


def contents(folder: Path) -> dict[str, bytes]:
    """What is stored, but for the files of processes that run."""
    paths = [path for path in (*folder.glob("lake/**/*"), *folder.glob("*/wal/*.wal")) if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if names.PRIVATE_FOLDER not in str(path)}


def left(folder: Path, kind: Kind) -> Path:
    unpacked(FIXTURES / f"{siltlog.__version__}-{kind}.tar.xz", folder)
    return folder


def test_a_log_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left(tmp_path / "left", "one")
    path = folder / NODES["one"][0] / names.WAL_FOLDER / names.segment_file(2)
    data = path.read_bytes()
    header = codec.decode_header(data[: codec.HEADER_BYTES])
    assert header is not None
    newer = codec.FORMAT_VERSION + 1
    monkeypatch.setattr(codec, "FORMAT_VERSION", newer)
    raised, _ = codec.encode_header(
        segment=2,
        size_bytes=header.size_bytes,
        created_us=header.created_us,
        cluster_id=header.cluster_id,
        nonce=bytes(16),
    )
    path.write_bytes(raised + data[len(raised) :])
    said = refusal(folder, "one")
    assert f"{path} has format version {newer}" in said
    assert "start the newer version again" in said


def test_who_may_do_what_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    folder = left(tmp_path / "left", "one")
    store = open_store((folder / "lake").as_uri())
    newer = document.AccessDocument(cluster_id(store), 2, format=document.FORMAT + 1)
    key = read_secret(folder / SECRET).key(PURPOSE_ACCESS)
    (folder / "lake" / names.access_object(2)).write_bytes(document.seal(newer, key))
    said = refusal(folder, "one")
    assert f"{names.access_object(2)} is of format {newer.format}" in said
    assert "start the newer release" in said


def test_a_view_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    folder = left(tmp_path / "left", "cluster")
    views = folder / "lake" / names.VIEWS_FOLDER
    newest = max(views.iterdir())
    number = int(newest.name) + 1
    view = msgspec.json.decode(newest.read_bytes()) | {"number": number, "format": CLUSTER_FORMAT + 1}
    (folder / "lake" / names.view_object(number)).write_bytes(msgspec.json.encode(view))
    said = refusal(folder, "cluster")
    assert f"{names.view_object(number)} is of format {CLUSTER_FORMAT + 1}" in said
    assert "upgrade this node" in said
