"""One request of a client of Kafka, as its handler gets it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from siltlog.infra.http.memory import Held
from siltlog.server.kafka.session import Session


@dataclass(frozen=True, slots=True)
class Call:
    """`body` has the fields by Kafka's names for them. `held` is the memory of the request."""

    version: int
    body: Mapping[str, Any]
    session: Session
    held: Held
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """The fields of an answer that is still waited for, while the next request may begin."""

    fields: Awaitable[Mapping[str, Any] | None]


Answer = Mapping[str, Any] | Waited | None
"""The fields of an answer; None where there is to be none."""
Handler = Callable[[Call], Awaitable[Answer]]
