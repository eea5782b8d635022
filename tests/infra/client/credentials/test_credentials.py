from pathlib import Path

import pytest

from siltlog.infra.client.credentials.credentials import (
    Credentials,
    check_blocking,
    check_may_carry,
    is_loopback,
)
from siltlog.infra.errors import ConfigError


@pytest.mark.parametrize(
    "url", ["https://silt.example", "http://localhost:1", "http://127.3.2.1", "http://[::1]:7", "unix:/run/silt.sock"]
)
def test_where_a_token_may_go(url: str) -> None:
    check_may_carry([url])


@pytest.mark.parametrize(
    "url", ["http://silt.example", "http://10.0.0.1", "http://localhost.example", "http://0.0.0.0:1", "http://[::2]"]
)
@pytest.mark.rule("X7")
def test_where_it_may_not(url: str) -> None:
    with pytest.raises(ConfigError, match="over plain http"):
        check_may_carry(["https://fine.example", url])


def test_loopback_is_what_no_resolver_changes() -> None:
    assert is_loopback("http://LOCALHOST:7070") and not is_loopback("http://my.localhost.example")


@pytest.mark.rule("X8")
def test_nothing_prints_a_token() -> None:
    assert "canary" not in repr(Credentials(token="canary"))


@pytest.mark.parametrize(
    "given",
    [{"token": 3}, {"token": "a b"}, {"token": "a\r\nX: y"}, {"ca": 3}, {"cert": ("a",)}, {"cert": ("a", 3)}],
)
def test_what_is_no_credential(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Credentials(**given)  # type: ignore[arg-type]


def test_what_is_one() -> None:
    Credentials(token=lambda: "t", ca=Path("ca.pem"), cert=("c.pem", Path("k.pem")))


def test_only_asyncio_awaits() -> None:
    async def token() -> str:
        return "t"

    class Asked:
        async def __call__(self) -> str:
            return "t"

    for given in (token, Asked()):
        with pytest.raises(ConfigError, match="coroutine function"):
            check_blocking(given)
    check_blocking(lambda: "t")
    check_blocking("t")
