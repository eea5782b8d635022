"""The door that can be cut is the network of the tests of clusters: it must fail as one, and mend."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cut_door import CutDoor


@pytest.fixture
def door() -> Iterator[CutDoor]:
    """Before a service that says again what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

        def echo(end: socket.socket) -> None:
            with suppress(OSError), end:
                while heard := end.recv(100):
                    end.sendall(heard)

        threading.Thread(target=serve, daemon=True).start()
        door = CutDoor(listener.getsockname()[1])
        yield door
        door.close()
        listener.shutdown(socket.SHUT_RDWR)


TIMEOUT_SECONDS = 30.0


def said(end: socket.socket, words: bytes) -> bytes:
    end.sendall(words)
    return end.recv(100)


def call(door: CutDoor) -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), timeout=TIMEOUT_SECONDS)


def test_it_is_cut_and_mended(door: CutDoor) -> None:
    with call(door) as end:
        assert said(end, b"one") == b"one"
        door.cut()
        with suppress(OSError):
            assert end.recv(100) == b""
    with call(door) as end, suppress(OSError):
        assert end.recv(100) == b""
    door.open()
    with call(door) as end:
        assert said(end, b"two") == b"two"


def test_what_is_stopped_up_waits_and_goes_on(door: CutDoor) -> None:
    with call(door) as end:
        assert said(end, b"one") == b"one"
        door.stop_up()
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            said(end, b"two")
        with call(door) as late:
            late.settimeout(0.2)
            with pytest.raises(TimeoutError):
                said(late, b"late")
            door.open()
            for each, words in ((end, b"two"), (late, b"late")):
                each.settimeout(TIMEOUT_SECONDS)
                assert each.recv(100) == words


def test_it_is_slow(door: CutDoor) -> None:
    door.slow_seconds = 0.1
    with call(door) as end:
        began = time.monotonic()
        assert said(end, b"one") == b"one"
        assert time.monotonic() - began >= 0.2
