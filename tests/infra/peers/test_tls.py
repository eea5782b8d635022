"""The certificates of nodes: whose count, and which files are used when they change."""

import ssl
from pathlib import Path

import pytest
from tls_rig import Made

from siltlog.infra.errors import ConfigError
from siltlog.infra.peers.tls import PeerTls
from siltlog.infra.telemetry import logger


def peer_tls(made: Made, authorities: str = "") -> PeerTls:
    return PeerTls(str(made.files.certificate), str(made.files.key), authorities, logger("critical", "json"))


def authorities_of(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


@pytest.mark.rule("CR14")
def test_files_that_change_are_used_once_they_fit(tmp_path: Path) -> None:
    made = Made(tmp_path)
    tls = peer_tls(made)
    first = tls.context()
    assert tls.context() is first, "it is made once"
    key = made.files.key.read_bytes()
    made.issue()
    new_key = made.files.key.read_bytes()
    made.files.key.write_bytes(key)
    assert tls.context() is first, "the key is not that of the certificate"
    made.files.key.write_bytes(new_key)
    assert tls.context() is not first


@pytest.mark.rule("CR14")
def test_authorities_that_are_named_are_all_that_count(tmp_path: Path) -> None:
    made = Made(tmp_path)
    path = tmp_path / "authorities.pem"
    made.authority.cert_pem.write_to_path(str(path))
    context = peer_tls(made, str(path)).context()
    assert authorities_of(context) == 1
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    path.write_text("nothing")
    with pytest.raises(ConfigError, match=f"{path} has no certificates in PEM"):
        peer_tls(made, str(path))
    with pytest.raises(ConfigError, match="are no certificate and its key"):
        PeerTls(str(made.files.certificate), str(tmp_path / "gone"), "", logger("critical", "json"))
