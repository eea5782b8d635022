"""A door before a service on loopback that can be cut, stopped up or slowed down: a network that fails."""

import socket
import threading
from contextlib import suppress
from typing import Literal

PIECE_BYTES = 65_536
Way = Literal["open", "cut", "silent"]


class CutDoor:
    """Listens from its making on, and passes on what comes to `port`, once there is one. Use `close` at the end."""

    def __init__(self, port: int = 0) -> None:
        self.target = port
        self.slow_seconds = 0.0
        """What each piece is held up by, in either direction."""
        self._way: Way = "open"
        self._opened = threading.Event()
        self._opened.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"door-{self.port}", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Ends every connection, and each that comes."""
        self._way = "cut"
        self._end_all()

    def stop_up(self) -> None:
        """Takes what comes and passes nothing on, in either direction, as a network does that drops everything."""
        self._opened.clear()
        self._way = "silent"

    def open(self) -> None:
        """What was stopped up goes on; nobody waits any more where it took too long."""
        self._way = "open"
        self._opened.set()

    def close(self) -> None:
        self.cut()
        self._opened.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _end_all(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            if self._way == "cut":
                caller.close()
                continue
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        self._opened.wait()
        try:
            service = socket.create_connection(("127.0.0.1", self.target), timeout=10)
        except OSError:
            caller.close()
            return
        service.settimeout(None)
        with self._lock:
            if self._way != "cut":
                self._ends |= {caller, service}
        if self._way == "cut":
            caller.close()
            service.close()
            return
        for end in (caller, service):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pass_on, args=(service, caller), daemon=True)
        back.start()
        self._pass_on(caller, service)
        back.join()
        with self._lock:
            self._ends -= {caller, service}
        caller.close()
        service.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._opened.wait()
                if self.slow_seconds:
                    threading.Event().wait(self.slow_seconds)
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
