"""Ports for programs that have to be told one."""

import socket
from pathlib import Path
from random import SystemRandom

FIRST = 20_000
_CHANCE = SystemRandom()


def free_port() -> int:
    """One that is free, and below those that the kernel gives to whoever asks for any: it stays so until its use."""
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = _CHANCE.randrange(FIRST, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
