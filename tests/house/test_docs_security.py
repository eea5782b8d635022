"""The way from the first key to production in docs/security.md, against a real server with TLS and authentication."""

import os
import re
import subprocess
from pathlib import Path

import doc_page
import pytest
import trustme

from siltlog.testing import running_server

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "security.md"


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_first_key_and_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    first, _, rest = section("From the first key to production").partition("Start the server")
    assert doc_page.run(first, "http://127.0.0.1:1", tmp_path) == 1
    (tmp_path / "key.pem").write_bytes((tmp_path / "tls.pem").read_bytes())
    settings = {"tls_cert": str(tmp_path / "tls.pem"), "tls_key": str(tmp_path / "key.pem"), "auth": "on"}
    with running_server(data_dir=tmp_path / "silt-data", **settings) as server:
        assert server.url.startswith("https://")
        monkeypatch.setenv("SILT_CA", str(tmp_path / "ca.pem"))
        assert doc_page.run(rest, server.url, tmp_path) == 3
        refused = subprocess.run(
            [doc_page.BINARIES / "silt", "topic", "list", "--token", "@shop.token", "--url", server.url],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 1
        assert "there is no such API key, or it was revoked" in refused.stderr


def test_the_tests_of_the_threats_are_there() -> None:
    named = re.findall(r"`((?:tests/[a-z_/]+/)?)([a-z_]+\.py)?`", section("Threats"))
    folder = ""
    for path, file in named:
        folder = path or folder
        assert (TOP / folder / file).exists(), (folder, file)
    assert len(named) > 10
