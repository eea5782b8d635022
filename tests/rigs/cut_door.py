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
        self._answering = threading.Event()
        for way in (self._opened, self._answering):
            way.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._refuses = False
        self.port: int = self._listener.getsockname()[1]
        self._begin()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def refuse(self) -> None:
        """Ends every connection, and has each that comes refused, as a machine does where nobody listens."""
        self._refuses = True
        self._end_listening()
        self._end_all()

    def listen(self) -> None:
        """Takes what comes again, where it refused that."""
        if self._refuses:
            self._refuses = False
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._begin()

    def cut(self) -> None:
        """Ends every connection, and each that comes."""
        self._way = "cut"
        self._end_all()

    def stop_up(self) -> None:
        """Takes what comes and passes nothing on, in either direction, as a network does that drops everything."""
        self._opened.clear()
        self._way = "silent"

    def mute(self) -> None:
        """Passes on what comes, and no answer: what is asked is done, and nobody hears of it."""
        self._answering.clear()

    def open(self) -> None:
        """What was stopped up goes on; nobody waits any more where it took too long."""
        self._way = "open"
        self._opened.set()
        self._answering.set()

    def close(self) -> None:
        self.cut()
        self._opened.set()
        self._answering.set()
        self._end_listening()

    def _begin(self) -> None:
        listener = self._listener
        threading.Thread(target=self._accept, args=(listener,), name=f"door-{self.port}", daemon=True).start()

    def _end_listening(self) -> None:
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

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
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
        back = threading.Thread(target=self._pass_on, args=(service, caller, self._answering), daemon=True)
        back.start()
        self._pass_on(caller, service, self._opened)
        back.join()
        with self._lock:
            self._ends -= {caller, service}
        caller.close()
        service.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, open_way: threading.Event) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._opened.wait()
                open_way.wait()
                if self.slow_seconds:
                    threading.Event().wait(self.slow_seconds)
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
