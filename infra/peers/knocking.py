"""Whether anybody listens at a node's address."""

import asyncio
import socket

from siltlog.infra.client.connection import Address
from siltlog.infra.cluster.router import Member

KNOCK_SECONDS_MAX = 1.0


async def refuses(member: Member) -> bool:
    """Whether the machine at each address of the node's name refused a connection; no when anything else came of it."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(KNOCK_SECONDS_MAX):
            address = Address.of(member.url)
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, place in found:
                with socket.socket(family, kind, protocol) as knocking:
                    knocking.setblocking(False)
                    try:
                        await loop.sock_connect(knocking, place)
                    except ConnectionRefusedError:
                        continue
                    return False
    except OSError:  # TimeoutError is one
        return False
    return bool(found)
