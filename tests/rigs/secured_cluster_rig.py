"""Real nodes over one root that ask who calls, and speak TLS: each with a certificate of its own."""

import os
import signal
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
from access_rig import As, make_first_key
from cluster_rig import Nodes, cluster
from cut_door import CutDoor
from http_rig import Reply
from tls_rig import Made

from siltlog.infra.security.secret import PURPOSE_HOPS, read_secret

SECRET = "0123456789abcdef" * 4


class SecuredNodes:
    """`admin` may do everything; callers go to a node by its name."""

    def __init__(self, nodes: Nodes, folder: Path, made: Mapping[str, Made], authorities: Path, token: str) -> None:
        self.nodes = nodes
        self.made = made
        self.authorities = authorities
        """The file of those that nodes and callers trust."""
        self.token = token
        self.key = read_secret(folder / "secret").key(PURPOSE_HOPS)
        """Nodes sign by it what they ask of each other."""

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authorities))

    def at(self, node: str, token: str | None) -> As:
        return As(self.nodes[node].url, token, self.context())

    def all(self, token: str | None) -> list[As]:
        return [self.at(name, token) for name, node in self.nodes.items() if node.server.running]

    @property
    def admin(self) -> As:
        return self.all(self.token)[0]

    def made_key(self, name: str, *roles: tuple[str, str]) -> tuple[str, str]:
        """A key with roles, each with a prefix: its id, and its token."""
        bindings = [{"role": role, "prefix": prefix} for role, prefix in roles]
        reply = self.admin.json("POST", "/v1/access/keys", {"name": name, "bindings": bindings})
        assert reply.status == 201, reply
        known = reply.json["id"]
        for each in self.all(self.token):
            self.nodes.until(lambda each=each: known in keys_of(each), "all nodes know the key")
        return known, reply.json["key"]

    def owner(self, topic: str, asked: str = "") -> str:
        """The name of the node that owns a topic, as a node says; empty while that cannot tell, or none does."""
        admin = self.at(asked, self.token) if asked else self.admin
        reply = admin.get(f"/v1/topics/{topic}")
        return str(reply.json.get("owner") or "") if reply.status == 200 else ""

    def other(self, topic: str) -> str:
        """A node that does not own it."""
        return next(name for name in self.nodes if name != self.owner(topic))

    def journal(self, node: str) -> str:
        reply: Reply = self.admin.get("/v1/nodes")
        return str(next(each["journal"] for each in reply.json["nodes"] if each["id"] == node))

    def hang_up(self) -> None:
        for node in self.nodes.values():
            os.kill(node.server.pid, signal.SIGHUP)

    def end_peers(self) -> None:
        """Nodes call each other by new connections from now on."""
        for node in self.nodes.values():
            node.peers.cut()
            node.peers.open()


def keys_of(caller: As) -> set[str]:
    reply = caller.get("/v1/access")
    return {key["id"] for key in reply.json["keys"]} if reply.status == 200 else set()


@contextmanager
def secured_cluster(folder: Path, count: int = 2, **settings: Any) -> Iterator[SecuredNodes]:
    authority = trustme.CA()
    authorities = folder / "authorities.pem"
    authority.cert_pem.write_to_path(str(authorities))
    made: dict[str, Made] = {}

    def each(name: str, peers: CutDoor) -> Mapping[str, Any]:
        own = folder / f"tls-{name}"
        own.mkdir()
        made[name] = Made(own, authority)
        return {
            "advertise_url": f"https://127.0.0.1:{peers.port}",
            "tls_cert": made[name].files.certificate,
            "tls_key": made[name].files.key,
            "tls_peer_ca": authorities,
        }

    root = {"root": (folder / "lake").as_uri(), "data_dir": str(folder / "first"), "auth": "on"}
    (folder / "secret").write_text(SECRET + "\n")
    (folder / "secret").chmod(0o600)
    token = make_first_key(**root, secret_file=str(folder / "secret"))
    with cluster(folder, count, each=each, auth="on", **settings) as nodes:
        yield SecuredNodes(nodes, folder, made, authorities, token)
