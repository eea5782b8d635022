"""A real server that asks who calls, with a first key that administers everything."""

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from browser import Page, opened
from http_rig import NO_REDIS, Http, Reply

from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import logger
from siltlog.server.access.bootstrap import first_key
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


class As(Http):
    """Calls a server with a token; None: without."""

    def __init__(self, url: str, token: str | None, context: ssl.SSLContext | None = None) -> None:
        super().__init__(url, context)
        self.token = token

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        if self.token is not None:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        return super().call(method, path, body, **headers)


def altered(token: str) -> str:
    """Another token, of the same form."""
    return token[:-1] + ("y" if token.endswith("x") else "x")


class Secured:
    """A server with authentication on. `admin` may do everything."""

    def __init__(self, server: ServerProcess, token: str, context: ssl.SSLContext | None = None) -> None:
        self.server = server
        self.admin = As(server.url, token, context)
        self.nobody = As(server.url, None, context)

    def key(self, name: str, *roles: tuple[str, str], **more: Any) -> tuple[str, As]:
        """Makes a key with roles, each with a prefix: its id, and who calls with it."""
        bindings = [{"role": role, "prefix": prefix} for role, prefix in roles]
        reply = self.admin.json("POST", "/v1/access/keys", {"name": name, "bindings": bindings, **more})
        assert reply.status == 201, reply
        return reply.json["id"], As(self.server.url, reply.json["key"])

    def allow(self, entry_id: str, principal: str, kind: str, name: str, *rights: str, **more: Any) -> None:
        entry = {"principal": principal, "kind": kind, "name": name, "operations": rights, **more}
        reply = self.admin.json("PUT", f"/v1/access/acls/{entry_id}", entry)
        assert reply.status == 200, reply

    def again(self) -> None:
        """The server has started anew, maybe on another port."""
        for caller in (self.admin, self.nobody):
            caller.url = self.server.url


def make_first_key(**settings: Any) -> str:
    made = ServerSettings(**settings)
    store = open_store(made.root_uri, s3_endpoint=made.s3_endpoint, s3_region=made.s3_region)
    return first_key(made, store, "admin", SystemClock(), logger("error", "json")).text()


@contextmanager
def secured_server(context: ssl.SSLContext | None = None, /, **settings: Any) -> Iterator[Secured]:
    """`context` is for callers of a server with TLS."""
    with tempfile.TemporaryDirectory(prefix="silt-", ignore_cleanup_errors=True) as scratch:
        settings = {"data_dir": str(Path(scratch) / "data"), "redis_url": NO_REDIS, "auth": "on", **settings}
        token = make_first_key(**settings)
        with running_server(**settings) as server:
            yield Secured(server, token, context)


def as_caller(browser: Any, secured: Secured, caller: As) -> AbstractContextManager[Page]:
    """A page of the server on which every request is this caller's."""
    return opened(browser, secured.server, extra_http_headers={"Authorization": f"Bearer {caller.token}"})
