"""Each object that a server and its jobs write to S3 is asked to be encrypted: by boto3, deltalake and Spark alike."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos import more
from http_rig import NO_REDIS, Http
from s3_policies import policed
from s3_server import S3Server, start_s3_server, with_new_bucket

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.store.store import open_store
from siltlog.testing import running_server

ALL = [
    {
        "actions": ["s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:ListBucket", "s3:AbortMultipartUpload"],
        "resources": ["*"],
    }
]
FIELD = "x-amz-server-side-encryption"
KEY_FIELD = "x-amz-server-side-encryption-aws-kms-key-id"
KEY = "silt-key"
COMMITS = 45
"""More than there are between two checkpoints."""


@pytest.fixture(scope="module")
def with_kms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = start_s3_server(tmp_path_factory.mktemp("kms"), kms=True)
    yield server
    server.stop()


@pytest.mark.rule("A44")
@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sse", "asked"), [more("s3", ("AES256", None)), ("kms", ("aws:kms", KEY)), more("bucket", (None, None))]
)
def test_nothing_is_written_without(
    sse: str,
    asked: tuple[str | None, str | None],
    spark: Any,
    with_kms: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in with_kms.environment().items():
        monkeypatch.setenv(name, value)
    root = with_new_bucket(with_kms, f"sse-{sse}").root_uri("lake")
    with policed(with_kms.endpoint, ALL) as proxy:
        settings = {"root": root, "s3_endpoint": proxy.endpoint, "s3_region": with_kms.region, "s3_sse": sse}
        settings |= {"s3_kms_key_id": KEY} if sse == "kms" else {}
        with running_server(**settings, redis_url=NO_REDIS, flush_ms=20, data_dir=tmp_path / "data") as server:
            http = Http(server.url)
            http.create("flights", partitions=2)
            for number in range(COMMITS):
                reply = http.publish("flights", {"value": f"{number}", "partition": number % 2}, query="?acks=table")
                assert reply.status == 200, reply
        for name, value in settings.items():
            monkeypatch.setenv(names.ENV_PREFIX + name.upper(), value)
        assert run(["compact"]) == 0
        assert run(["export", "--topic", "flights", "--to", f"{root}-exported", "--format", "delta"]) == 0
        assert run(["backup", "--to", f"{root}-backup"]) == 0
        written = dict(proxy.written)
        kinds = {
            "a commit": "_delta_log/00000000000000000005.json",
            "a checkpoint": ".checkpoint.parquet",
            "the last checkpoint": "_last_checkpoint",
            "the cluster": "cluster/",
            "a data file": ".parquet",
            "an export": "-exported/",
            "a backup": "-backup/",
        }
        assert [kind for kind, part in kinds.items() if not any(part in path for path in written)] == []
        assert any("Hadoop" in fields.get("user-agent", "") for fields in written.values()), "Spark wrote too"
        others = {path: fields for path, fields in proxy.written if (fields.get(FIELD), fields.get(KEY_FIELD)) != asked}
        assert sorted(others) == []
    store = open_store(root, s3_endpoint=with_kms.endpoint, s3_region=with_kms.region)
    assert store.list("topics/flights"), "what is encrypted can be read without a setting"
