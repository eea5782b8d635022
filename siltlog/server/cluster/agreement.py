"""Whether the nodes agree on who is asked who he is, and on what time it is: each says both at every look."""

from collections.abc import Callable, Collection

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.telemetry import Logger

APART_SECONDS_MAX = 30.0
"""How far apart clocks may be for tokens and keys to end when they should, and records to expire no sooner."""


class Said(msgspec.Struct, frozen=True):
    """What a node says of itself; one of 0.1.0 says nothing."""

    auth: str = ""
    now_us: int = 0


_said = msgspec.json.Decoder(Said)


class Agreement:
    """Used on one event loop."""

    def __init__(self, auth: str, clock: Clock, members: Callable[[], Collection[str]], logger: Logger) -> None:
        """`members()` are the names of the nodes that are there."""
        self._auth = auth
        self._clock = clock
        self._members = members
        self._logger = logger
        self._auths: dict[str, str] = {}
        self._ahead_s: dict[str, float] = {}
        """How far the clocks of others are ahead of this node's, where that is too far."""

    def says(self) -> Said:
        """What this node tells another that looks at it."""
        return Said(self._auth, self._clock.now_us())

    def hear(self, node: str, content: bytes, asked_us: int) -> None:
        """Takes what another node said of itself when it was asked. Raises MsgspecError where it is none of that."""
        said = _said.decode(content)
        before = self._auths.get(node)
        self._auths[node] = said.auth
        if said.auth not in ("", self._auth, before):
            self._logger.warning(
                "a node of the cluster has another SILT_AUTH", peer=node, theirs=said.auth, ours=self._auth
            )
        ahead_us = 0 if not said.now_us else max(said.now_us - self._clock.now_us(), min(0, said.now_us - asked_us))
        if abs(ahead_us) <= APART_SECONDS_MAX * MICROS_PER_SECOND:
            self._ahead_s.pop(node, None)
            return
        ahead_s = round(ahead_us / MICROS_PER_SECOND)
        if node not in self._ahead_s:
            self._logger.warning("a node of the cluster has another time", peer=node, ahead_seconds=ahead_s)
        self._ahead_s[node] = ahead_s

    def warnings(self) -> list[str]:
        """Sentences about those that differ from this node."""
        members = self._members()
        found = [
            f"cluster: SILT_AUTH is {auth} on node {node} and {self._auth} here: set it alike. Where it is off "
            "everybody may do everything, and a node where it is on refuses (401) what such a node passes on"
            for node, auth in sorted(self._auths.items())
            if node in members and auth not in ("", self._auth)
        ]
        found += [
            f"cluster: the clock of node {node} is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this "
            "node's: keys and tokens end at another time there, and records expire"
            for node, ahead_s in sorted(self._ahead_s.items())
            if node in members
        ]
        return found
