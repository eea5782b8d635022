"""The names that a server is called by, and the pages that may call it, as values; test_door.py asks over HTTP."""

import pytest

from siltlog.infra.errors import Refused
from siltlog.infra.security.grant import Caller
from siltlog.infra.security.origins import HOST_BYTES_MAX, HOSTS_KNOWN_MAX, Origins

PAGE = b"https://app.example"


def code_of(origins: Origins, caller: Caller) -> str:
    """What a caller is refused by; empty for one that is admitted."""
    try:
        origins.admit(caller)
    except Refused as refused:
        return refused.error_code
    return ""


def test_a_name_is_known_once_a_caller_was_admitted_by_it() -> None:
    origins = Origins(["silt.example"], ())
    assert origins.known(b"silt.example") is None
    assert code_of(origins, Caller(b"silt.example")) == ""
    assert origins.known(b"silt.example") == ((),)
    assert code_of(origins, Caller(b"evil.example")) == "unknown_host"
    assert origins.known(b"evil.example") is None


def test_what_was_known_is_asked_anew_by_other_names() -> None:
    origins = Origins(["silt.example"], [PAGE.decode()])
    caller = Caller(b"silt.example", origin=PAGE)
    assert (b"access-control-allow-origin", PAGE) in origins.admit(caller).fields
    origins.reconfigure(["silt.example"], ())
    assert origins.known(b"silt.example") is None
    assert code_of(origins, caller) == "origin_not_allowed"
    assert origins.fields(caller) == ()
    origins.reconfigure((), [PAGE.decode()])
    assert code_of(origins, caller) == "unknown_host"
    assert (b"vary", b"Origin") in origins.fields(caller), "the page may read that"


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_a_server_at_all_addresses_is_called_by_any_of_them_and_by_no_other_name(address: str) -> None:
    origins = Origins([address], ())
    assert [code_of(origins, Caller(host)) for host in (b"10.0.0.1:7070", b"[::2]")] == ["", ""]
    assert code_of(origins, Caller(b"evil.example")) == "unknown_host"


def test_the_socket_has_no_name_and_no_page() -> None:
    assert code_of(Origins((), ()), Caller(b"evil.example", origin=b"https://evil.example", local=True)) == ""


@pytest.mark.rule("A64")
def test_a_name_that_no_host_can_have_is_refused_and_not_remembered() -> None:
    origins = Origins([], [])
    for host in (b"x" * 60_000, b"x" * (HOST_BYTES_MAX + 1)):
        with pytest.raises(Refused):
            origins.admit(Caller(host))
    assert not origins._known
    with pytest.raises(Refused):
        origins.admit(Caller(b"x" * HOST_BYTES_MAX))
    assert len(origins._known) == 1


def test_names_that_strangers_make_up_take_no_memory_for_ever() -> None:
    origins = Origins((), ())
    assert code_of(origins, Caller(b"localhost")) == ""
    for number in range(HOSTS_KNOWN_MAX):
        code_of(origins, Caller(b"%d.example" % number))
    assert origins.known(b"localhost") is None
    assert code_of(origins, Caller(b"localhost")) == ""
    assert origins.known(b"localhost") is not None
