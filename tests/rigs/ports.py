"""Ports for programs that have to be told one, and that come back on theirs after they were killed.

They lie below those that Linux gives to whoever asks for any, and each worker of the tests has a part of them: so
nobody takes one while its program is away.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from itertools import cycle
from random import SystemRandom

from siltlog.infra import names

PART = 800
"""How many a worker has."""
WORKERS_MAX = 8
FIRST = 23_000
_PORT = names.ENV_PREFIX + "PORT"


def free_port() -> int:
    """Gives the next one of this worker that is free."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def with_port(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of a server that is to take any port: it names one that stays its own over restarts."""
    return {**environment, _PORT: str(free_port())} if environment.get(_PORT) == "0" else environment


def _of_worker() -> Iterator[int]:
    """Yields the ports of this worker, over and over. It begins anywhere: other runs of tests on this machine have the
    same."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
    begins = SystemRandom().randrange(PART)
    return cycle(FIRST + number * PART + (begins + step) % PART for step in range(PART))


_ports = _of_worker()
