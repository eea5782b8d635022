"""What S3 is asked to encrypt by: every object of every writer, on a real server and on one that has keys of KMS."""

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from s3_policies import Policed, policed
from s3_server import S3Server

from siltlog.infra.errors import ConfigError
from siltlog.infra.store.s3 import S3Store
from siltlog.infra.store.store import COPY_BYTES, Put, open_store

ALL = [{"actions": ["s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:ListBucket"], "resources": ["*"]}]
FIELD = "x-amz-server-side-encryption"
KEY_FIELD = "x-amz-server-side-encryption-aws-kms-key-id"
KEY = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"


@pytest.fixture
def watched(s3_server: S3Server) -> Iterator[Policed]:
    with policed(s3_server.endpoint, ALL) as proxy:
        yield proxy


def put_all(store: S3Store) -> None:
    store.put("one", b"1")
    assert [store.put_if_absent("two", content) for content in (b"2", b"3")] == [Put.WRITTEN, Put.EXISTS]
    with store.open("one") as source:
        store.put_from("three", source)
    (Path("large")).write_bytes(os.urandom(2 * COPY_BYTES + 1))
    with Path("large").open("rb") as large:
        store.put_from("four", large)


@pytest.mark.rule("A44")
@pytest.mark.s3
@pytest.mark.parametrize(("sse", "field"), [("bucket", None), ("s3", "AES256")])
def test_every_way_to_write_an_object(
    sse: str, field: str | None, watched: Policed, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(s3_server.root_uri(f"sse-{sse}"), s3_endpoint=watched.endpoint, s3_sse=sse)
    assert isinstance(store, S3Store)
    put_all(store)
    assert store.get("four") == Path("large").read_bytes() and store.get("two") == b"2"
    assert [(path.rpartition("/")[2], fields.get(FIELD)) for path, fields in watched.written] == [
        ("one", field),
        ("two", field),
        ("two", field),
        ("three", field),
        ("four", field),
    ]


def test_with_a_key_of_kms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x" * 20)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        store = open_store("s3://lake/lake", s3_region="us-east-1", s3_sse="kms", s3_kms_key_id=KEY)
        assert isinstance(store, S3Store)
        put_all(store)
        for name in ("one", "two", "three", "four"):
            head = client.head_object(Bucket="lake", Key=f"lake/{name}")
            assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY), name


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="SILT_S3_SSE=aes is none of bucket, s3, kms"):
        open_store("s3://b/lake", s3_sse="aes")
    with pytest.raises(ConfigError, match="SILT_S3_KMS_KEY_ID is for SILT_S3_SSE=kms"):
        open_store("s3://b/lake", s3_sse="s3", s3_kms_key_id=KEY)
