"""The way of docs/aws.md to the first record, with AWS and Terraform played and a real S3, server, TLS and keys."""

import re
from pathlib import Path

import doc_page
import pytest
from s3_policies import blocks, parse
from s3_server import S3Server

from siltlog.testing import running_server

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "aws.md").read_text("utf-8")
WHOLE = TOP / "terraform" / "examples" / "whole" / "main.tf"


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
@pytest.mark.s3
def test_the_first_key_and_the_first_record(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = s3_server.root_uri("aws-page")
    played = tmp_path / "bin"
    played.mkdir()
    (played / "terraform").write_text(f'#!/bin/sh\n[ "$*" = "output -raw root_uri" ] && echo {root}\n', "utf-8")
    # What Secrets Manager keeps is what the machine gets.
    keeps = (
        f'[ "$1 $2" = "secretsmanager put-secret-value" ] && cp "${{6#file://}}" "{tmp_path}/kept-${{4#siltlog/}}"\n'
    )
    (played / "aws").write_text(f"#!/bin/bash\n{keeps}", "utf-8")
    for program in played.iterdir():
        program.chmod(0o755)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", s3_server.region)
    monkeypatch.setenv("SILT_S3_ENDPOINT", s3_server.endpoint)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def with_played(commands: str) -> str:
        return f"PATH={played}:$PATH\n{commands}".replace("log.acme.internal", "localhost")

    page = section("The secret, the certificate, the first key")
    assert doc_page.run(page, "http://127.0.0.1:1", tmp_path, change=with_played) == 1
    settings = {
        "root": root, "s3_region": s3_server.region, "s3_endpoint": s3_server.endpoint,
        "auth": "on", "hosts": "localhost", "redis_url": "redis://127.0.0.1:1/0",
        "secret_file": str(tmp_path / "kept-secret"),
        "tls_cert": str(tmp_path / "kept-tls.crt"), "tls_key": str(tmp_path / "kept-tls.key"),
    }  # fmt: skip
    with running_server(data_dir=tmp_path / "data", **settings) as server:
        port = server.url.rpartition(":")[2].strip("/")

        def to_the_server(commands: str) -> str:
            return commands.replace("https://log.acme.internal:7070", f"https://localhost:{port}")

        assert doc_page.run(section("The first record"), server.url, tmp_path, change=to_the_server) == 1


def test_what_the_page_sets_and_asks_is_in_the_example() -> None:
    project = parse(WHOLE.read_text("utf-8"), {})
    variables = {name for block in project["variable"] for name in block}
    assert set(re.findall(r"^(\w+) += ", section("Before"), re.MULTILINE)) | {"emr_release"} <= variables
    outputs = {name for block in project["output"] for name in block}
    assert set(re.findall(r"terraform output -raw (\w+)", PAGE)) <= outputs
    server = parse((TOP / "terraform" / "modules" / "server" / "main.tf").read_text("utf-8"), {})
    [secrets] = blocks(server, "resource", "aws_secretsmanager_secret").values()
    assert (secrets["for_each"], secrets["name"]) == (
        '${toset(["secret", "tls.crt", "tls.key"])}',
        "${var.name}/${each.value}",
    )
