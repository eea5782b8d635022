"""One node, as all its rooms share it: what each assembly is given."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra.clock import Clock
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.telemetry import Logger

if TYPE_CHECKING:
    from siltlog.infra.tracing.serving import Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    settings: ServerSettings
    cluster_id: str
    store: ObjectStore
    journals: ObjectStore
    """Where journals are: the same, unless they have a place of their own."""
    clock: Clock
    in_flight: InFlight
    draining: Draining
    metrics: Metrics
    logger: Logger
    serving: "Serving | None"
    """What it traces with, where it does."""
