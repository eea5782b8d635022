import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.locations import networks
from siltlog.infra.security.proxies import Proxies

PROXIES = Proxies(networks("10.0.0.0/8, 192.168.7.1, fd00::/8"))


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.7.1", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0"])
def test_trusted(address: str) -> None:
    assert PROXIES.trusts(address)


@pytest.mark.parametrize("address", ["11.0.0.1", "192.168.7.2", "::1", "", "unknown", "10.1.2.3:80", "10.1.2"])
def test_not_trusted(address: str) -> None:
    assert not PROXIES.trusts(address)


def test_what_a_stranger_says_counts_for_nothing() -> None:
    fields = {b"x-forwarded-for": b"1.2.3.4", b"x-forwarded-proto": b"https"}
    assert PROXIES.forwarded("11.0.0.1", "http", fields) == ("11.0.0.1", "http")


def test_the_caller_is_the_first_from_the_right_that_is_no_proxy() -> None:
    fields = {b"x-forwarded-for": b"6.6.6.6, 1.2.3.4, 10.9.9.9", b"x-forwarded-proto": b"https"}
    assert PROXIES.forwarded("10.1.2.3", "http", fields) == ("1.2.3.4", "https")
    only_proxies = {b"x-forwarded-for": b"10.5.5.5, 10.9.9.9"}
    assert PROXIES.forwarded("10.1.2.3", "http", only_proxies) == ("10.5.5.5", "http")
    assert PROXIES.forwarded("10.1.2.3", "http", {}) == ("10.1.2.3", "http")


@pytest.mark.parametrize(
    ("said", "scheme"), [(b"http, https", "https"), (b"https, http", "http"), (b"HTTPS", "https"), (b"ftp", "http")]
)
def test_the_scheme_is_what_the_last_proxy_saw(said: bytes, scheme: str) -> None:
    assert PROXIES.forwarded("10.1.2.3", "http", {b"x-forwarded-proto": said}).scheme == scheme


@pytest.mark.rule("A23")
@given(st.lists(st.ip_addresses(v=4).map(str), max_size=5), st.ip_addresses(v=4).map(str))
def test_nobody_chooses_an_address(claimed: list[str], caller: str) -> None:
    """Whatever a caller claims in front of what the proxy appends, the proxy's own word counts."""
    fields = {b"x-forwarded-for": ", ".join([*claimed, caller]).encode()}
    found = PROXIES.forwarded("10.1.2.3", "http", fields).address
    assert found == caller or PROXIES.trusts(caller)


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        (b"/logs", "/logs"),
        (b"/a/b-c.d~_/", "/a/b-c.d~_"),
        (b"/", ""),
        (b"", ""),
        (b"logs", ""),
        (b"/logs; Domain=example", ""),
        (b"/logs, /more", ""),
        (b"//evil.example", ""),
        (b"/" + b"a" * 101, ""),
    ],
)
def test_a_prefix_is_a_path_and_a_proxy_says_it(said: bytes, prefix: str) -> None:
    assert PROXIES.prefix("10.1.2.3", {b"x-forwarded-prefix": said}) == prefix
    assert PROXIES.prefix("203.0.113.9", {b"x-forwarded-prefix": said}) == ""
    assert PROXIES.prefix("10.1.2.3", {}) == ""


def test_a_prefix_that_is_left_is_the_one_of_who_says_none() -> None:
    proxies = Proxies(networks("10.0.0.0/8"), "/data/log")
    assert proxies.prefix("203.0.113.9", {b"x-forwarded-prefix": b"/mine"}) == "/data/log"
    assert proxies.prefix("10.1.2.3", {}) == "/data/log"
    assert proxies.prefix("10.1.2.3", {b"x-forwarded-prefix": b"/other"}) == "/other"
