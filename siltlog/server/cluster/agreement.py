"""Whether the nodes agree on who is asked who he is: each says at every look how it is set."""

from collections.abc import Callable, Collection

import msgspec

from siltlog.infra.telemetry import Logger


class Settings(msgspec.Struct, frozen=True):
    """How a node is set; one of 0.1.0 does not say it."""

    auth: str = ""


_settings = msgspec.json.Decoder(Settings)


class Agreement:
    """Used on one event loop."""

    def __init__(self, ours: Settings, members: Callable[[], Collection[str]], logger: Logger) -> None:
        """`members()` are the names of the nodes that are there."""
        self.ours = ours
        self._members = members
        self._logger = logger
        self._others: dict[str, str] = {}

    def hear(self, node: str, said: bytes) -> None:
        """Takes what another node says of itself. Raises MsgspecError where it is none of that."""
        auth = _settings.decode(said).auth
        before = self._others.get(node)
        self._others[node] = auth
        if auth not in ("", self.ours.auth, before):
            self._logger.warning(
                "a node of the cluster has another SILT_AUTH", peer=node, theirs=auth, ours=self.ours.auth
            )

    def warnings(self) -> list[str]:
        """Sentences about those that are set otherwise."""
        members = self._members()
        return [
            f"cluster: SILT_AUTH is {auth} on node {node} and {self.ours.auth} here: set it alike. Where it is off "
            "everybody may do everything, and a node where it is on refuses (401) what such a node passes on"
            for node, auth in sorted(self._others.items())
            if node in members and auth not in ("", self.ours.auth)
        ]
