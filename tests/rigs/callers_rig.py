"""A server that asks who calls, the keys of its callers, and its access document, which changes as by another node."""

import http.client
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.http.connection.connection import STRANGER_SECONDS
from siltlog.infra.security.access import Binding, Entry
from siltlog.infra.security.document import AccessDocument, KeptKey
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.security.keys import hash_of, make_key
from siltlog.infra.security.secret import PURPOSE_ACCESS, PURPOSE_KEYS, make_secret, read_secret
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import logger
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

LOCAL = "local"
TIMEOUT_S = 25.0
IDLE_S = 1.0
_numbers = itertools.count(1)


class Keys:
    """The access document of a server, and the tokens of its keys by their names."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        make_secret(data_dir / names.SECRET_FILE)
        secret = read_secret(data_dir / names.SECRET_FILE)
        self._hash_key = secret.key(PURPOSE_KEYS)
        self._clock = SystemClock()
        store = open_store((data_dir / names.LAKE_FOLDER).as_uri())
        seen = data_dir.with_name("seen-by-another")
        log = logger("error", "console")
        self._documents = AccessDocuments(store, cluster_id(store), secret.key(PURPOSE_ACCESS), seen, self._clock, log)
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def add(self, name: str, *grants: Binding | Entry, seconds: float | None = None) -> str:
        """Makes a key and what it is granted, for `seconds`; gives its token."""
        key = make_key(os.urandom)
        now_us = self._clock.now_us()
        expires_us = None if seconds is None else now_us + int(seconds * 1_000_000)
        kept = KeptKey(name, hash_of(key, self._hash_key), now_us, expires_us)
        self.write(lambda document: _changed(document, keys={**document.keys, key.key_id: kept}))
        self.tokens[name], self.ids[name] = key.text(), key.key_id
        self.grant(name, *grants)
        return key.text()

    def grant(self, name: str, *grants: Binding | Entry) -> None:
        """Has the key `name` have just these."""
        principal = f"key:{name}"

        def granted(document: AccessDocument) -> AccessDocument:
            entries = {at: entry for at, entry in document.entries.items() if entry.principal != principal}
            bindings = {at: binding for at, binding in document.bindings.items() if binding.principal != principal}
            for one in grants:
                own: Any = bindings if isinstance(one, Binding) else entries
                own[f"g{next(_numbers)}"] = msgspec.structs.replace(one, principal=principal)
            return _changed(document, entries=entries, bindings=bindings)

        self.write(granted)

    def revoke(self, name: str) -> None:
        gone = self.ids[name]
        self.write(
            lambda document: _changed(document, keys={at: key for at, key in document.keys.items() if at != gone})
        )

    def held_by(self, caller: "Caller") -> None:
        """Returns once the server that `caller` administers has the newest document."""
        until = time.monotonic() + TIMEOUT_S
        while caller.call("GET", "/v1/access").json["version"] < self._documents.current.document.number:
            assert time.monotonic() < until, "it does not look"
            time.sleep(0.05)

    def write(self, change: Callable[[AccessDocument], AccessDocument]) -> None:
        self._documents.write(change)


def _changed(document: AccessDocument, **parts: Mapping[str, Any]) -> AccessDocument:
    return msgspec.structs.replace(document, **parts)


def role(name: Any, prefix: str = "") -> Binding:
    return Binding("", name, prefix)


def entry(kind: Any, name: str, *rights: Any, pattern: Any = "literal", effect: Any = "allow") -> Entry:
    return Entry("", kind, name, rights, pattern, effect)


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


class Caller:
    """Calls as one principal: by its token, by none, or over the socket of the machine's own user."""

    def __init__(self, server: ServerProcess, token: str | None, *, local: bool = False) -> None:
        self._server = server
        self._local = local
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = self.connection()
        self._called_at = 0.0
        self._connected_at = time.monotonic()

    def connection(self) -> http.client.HTTPConnection:
        if self._local:
            return _OverSocket(self._server.data_dir / names.SOCKET_FILE)
        parts = urlsplit(self._server.url)
        assert parts.hostname
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def call(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        """Header names are written with underscores."""
        named = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        now = time.monotonic()
        known = self._local or "Authorization" in self.headers
        if now - self._called_at > IDLE_S or (not known and now - self._connected_at > STRANGER_SECONDS / 2):
            # The server may be about to close it.
            self._connection.close()
            self._connected_at = now
        self._called_at = now
        body = None
        if document is not None:
            body = msgspec.json.encode(document)
            named["Content-Type"] = names.MEDIA_JSON
        self._connection.request(method, path, body, named)
        reply = self._connection.getresponse()
        return Answer(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())

    def begun(self, path: str, **headers: str) -> Answer:
        """The beginning of an answer that may go on for ever, on a connection of its own."""
        connection = self.connection()
        try:
            named = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", path, headers=named)
            reply = connection.getresponse()
            body = reply.read() if reply.status >= 400 else b""
            return Answer(reply.status, {name.lower(): value for name, value in reply.getheaders()}, body)
        finally:
            connection.close()


@contextmanager
def asking_server(folder: Path, **settings: Any) -> Iterator[tuple[ServerProcess, Keys]]:
    """A server with authentication on, in `folder`, and its keys; none are there yet."""
    keys = Keys(folder / "data")
    keys.add("root", role("admin"))
    with running_server(data_dir=folder / "data", auth="on", **settings) as server:
        yield server, keys
