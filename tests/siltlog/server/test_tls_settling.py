"""The certificate of a server while its file and that of its key are written one after the other."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from tls_rig import LaterClock, Made

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
