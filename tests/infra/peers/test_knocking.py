"""Whether a port is listened at, by real sockets."""

import asyncio
import socket

from siltlog.infra.cluster.router import Member
from siltlog.infra.peers.knocking import refuses


def at(url: str) -> Member:
    return Member("n", "j", url)


def test_a_port_where_nobody_listens_refuses_and_one_that_is_not_served_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert asyncio.run(refuses(at(url))) is False, "whoever stands still accepts nothing, and is there"
    assert asyncio.run(refuses(at(url))) is True
    assert asyncio.run(refuses(at(url.replace("http", "https")))) is True


def test_what_is_not_known_is_no_refusal() -> None:
    assert asyncio.run(refuses(at("http://name.invalid:7070"))) is False
