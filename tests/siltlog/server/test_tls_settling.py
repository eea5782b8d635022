"""The certificate of a server while its file and that of its key are written one after the other."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
import trustme
from tls_rig import LaterClock, Made, client_of, serial_of, shake_hands

from siltlog.infra.security.file_versions import SETTLING_SECONDS
from siltlog.server.tls import Tls


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def write_half(made: Made) -> bytes:
    """Writes another certificate, and gives the key that is still to come."""
    key = made.files.key.read_bytes()
    made.issue()
    fresh = made.files.key.read_bytes()
    made.files.key.write_bytes(key)
    return fresh


def told(log: Mock) -> list[str]:
    return [call.kwargs["reason"] for call in log.error.call_args_list]


@pytest.mark.rule("A20")
def test_a_pair_that_is_being_replaced_is_no_error_and_is_used_once_it_fits(made: Made) -> None:
    log = Mock()
    tls = Tls(made.files, LaterClock(), log)
    first = tls.context
    key = write_half(made)
    asyncio.run(tls.look())
    assert (told(log), tls.warnings(), tls.context is first) == ([], [], True)
    made.files.key.write_bytes(key)
    asyncio.run(tls.look())
    assert (told(log), tls.warnings(), tls.context is first) == ([], [], False)


def test_a_pair_that_stays_apart_is_told_once_it_has_settled(made: Made) -> None:
    clock, log = LaterClock(), Mock()
    tls = Tls(made.files, clock, log)
    write_half(made)
    asyncio.run(tls.look())
    clock.seconds = SETTLING_SECONDS
    for _ in range(2):
        asyncio.run(tls.look())
    [reason] = told(log)
    assert "is not that of the certificate" in reason
    assert tls.warnings() == [f"tls: the changed certificate is not used, the one before is: {reason}"]


def test_what_was_told_stands_while_the_files_are_mended(made: Made) -> None:
    clock, log = LaterClock(), Mock()
    tls = Tls(made.files, clock, log)
    key = write_half(made)
    clock.seconds = SETTLING_SECONDS
    asyncio.run(tls.look())
    [reason] = told(log)
    clock.seconds = 0
    made.files.key.write_text("half of a key")
    asyncio.run(tls.look())
    assert told(log) == [reason]
    assert reason in str(tls.warnings())
    made.files.key.write_bytes(key)
    asyncio.run(tls.look())
    assert tls.warnings() == []


def test_who_asks_is_told_at_once(made: Made) -> None:
    log = Mock()
    tls = Tls(made.files, LaterClock(), log)
    write_half(made)
    reason = asyncio.run(tls.reload())
    assert told(log) == [reason]
    assert reason in str(tls.warnings())


@pytest.mark.rule("A20")
def test_a_certificate_whose_time_is_not_now_takes_no_valid_ones_place(made: Made) -> None:
    clock, log = LaterClock(), Mock()
    now = datetime.now(UTC)
    made.issue(now + timedelta(hours=2))
    tls = Tls(made.files, clock, log)
    first = tls.context
    made.issue(now - timedelta(hours=1))
    reason = asyncio.run(tls.reload())
    assert reason.startswith(f"the certificate in {made.files.certificate} ended at ")
    assert (tls.context is first, told(log)) == (True, [reason])
    made.issue(now + timedelta(hours=9), not_before=now + timedelta(hours=1))
    assert "does not count before" in asyncio.run(tls.reload())
    assert tls.context is first
    # Without being asked, once its time has come.
    clock.seconds = timedelta(hours=1, minutes=1).total_seconds()
    asyncio.run(tls.look())
    assert (tls.context is first, tls.warnings()) == (False, [])


def test_a_certificate_that_has_ended_takes_the_place_of_another(made: Made) -> None:
    clock, log = LaterClock(), Mock()
    now = datetime.now(UTC)
    made.issue(now + timedelta(hours=1))
    tls = Tls(made.files, clock, log)
    clock.seconds = timedelta(hours=3).total_seconds()
    made.issue(now + timedelta(hours=2))
    assert asyncio.run(tls.reload()) == ""
    assert tls.not_after > now + timedelta(hours=1, minutes=30)


def write_none_that_serves(made: Made, why: str) -> str:
    """Replaces the pair by one that cannot be used now; gives a part of what is said of it."""
    now = datetime.now(UTC)
    match why:
        case "ended":
            made.issue(now - timedelta(hours=1))
            return "ended at"
        case "early":
            made.issue(now + timedelta(hours=9), not_before=now + timedelta(hours=1))
            return "does not count before"
    write_half(made)
    return "is not that of the certificate"


@pytest.mark.parametrize("why", ["ended", "early", "apart"])
@pytest.mark.rule("A20")
def test_a_certificate_that_cannot_be_used_keeps_nobody_in_who_was_shut_out(made: Made, why: str) -> None:
    clock, log = LaterClock(), Mock()
    files = made.with_clients()._replace(revoked=made.revoke(), h2=True)
    assert files.client_ca is not None
    other = trustme.CA()
    files.client_ca.write_bytes(made.authority.cert_pem.bytes() + other.cert_pem.bytes())
    lost, kept = made.authority.issue_cert("lost"), made.authority.issue_cert("kept")
    tls = Tls(files, clock, log)
    not_after = tls.not_after
    assert serves(tls, made, lost)
    words = write_none_that_serves(made, why)
    made.revoke(serial_of(lost))
    clock.seconds = SETTLING_SECONDS
    asyncio.run(tls.look())
    first = tls.context
    [reason] = told(log)
    assert words in reason
    assert reason in str(tls.warnings())
    assert (tls.not_after, serves(tls, made, lost), serves(tls, made, kept)) == (not_after, False, True)
    # What has not changed is not put in place again.
    asyncio.run(tls.look())
    assert tls.context is first
    files.client_ca.write_bytes(other.cert_pem.bytes())
    asyncio.run(tls.look())
    assert (serves(tls, made, kept), told(log)) == (False, [reason])
    # As often as it is needed: what was kept is kept still.
    made.authority.cert_pem.write_to_path(str(files.client_ca))
    assert words in asyncio.run(tls.reload())
    assert (serves(tls, made, lost), serves(tls, made, kept)) == (False, True)
    made.issue()
    assert asyncio.run(tls.reload()) == ""
    assert (tls.warnings(), serves(tls, made, lost), serves(tls, made, kept)) == ([], False, True)


def serves(tls: Tls, made: Made, shown: trustme.LeafCert) -> bool:
    """Whether who shows this certificate comes in, with HTTP and with gRPC alike."""
    served = []
    for context in (tls.context, tls.h2_context):
        client = client_of(made)
        shown.configure_cert(client)
        try:
            served.append(shake_hands(context, client) is not None)
        except ssl.SSLError:
            served.append(False)
    assert served[0] is served[1]
    return served[0]


@pytest.mark.rule("A20")
def test_all_that_cannot_be_used_is_told(made: Made) -> None:
    log = Mock()
    files = made.with_clients()
    assert files.client_ca is not None
    tls = Tls(files, LaterClock(), log)
    first = tls.context
    write_half(made)
    files.client_ca.write_text("none")
    reason = asyncio.run(tls.reload())
    assert "is not that of the certificate" in reason
    assert f"{files.client_ca} does not hold certificates of authorities" in reason
    assert tls.context is first
