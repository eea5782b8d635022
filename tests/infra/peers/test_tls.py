"""The certificates of nodes: whose count, and which files are used when they change."""

import ssl
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tls_rig import LaterClock, Made

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.peers.tls import PeerTls
from siltlog.infra.security.file_versions import SETTLING_SECONDS
from siltlog.infra.telemetry import logger


def peer_tls(
    made: Made, authorities: str = "", key: Path | None = None, clock: Clock | None = None, log: Any = None
) -> PeerTls:
    files = made.files
    log = log or logger("critical", "json")
    return PeerTls(str(files.certificate), str(key or files.key), authorities, clock or SystemClock(), log)


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
def test_files_that_are_being_replaced_are_no_error_and_those_that_stay_apart_are_told_once(tmp_path: Path) -> None:
    made = Made(tmp_path)
    clock, log = LaterClock(), Mock()
    tls = peer_tls(made, clock=clock, log=log)
    certificate = made.files.certificate.read_bytes()
    made.issue()
    made.files.certificate.write_bytes(certificate)
    tls.context()
    log.error.assert_not_called()
    clock.seconds = SETTLING_SECONDS
    for _ in range(2):
        tls.context()
    log.error.assert_called_once()


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
        peer_tls(made, key=tmp_path / "gone")
