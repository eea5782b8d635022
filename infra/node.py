"""One node, as all its rooms share it: what each assembly is given."""

from dataclasses import dataclass

from siltlog.infra.clock import Clock
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.telemetry import Logger, Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    settings: ServerSettings
    cluster_id: str
    store: ObjectStore
    clock: Clock
    in_flight: InFlight
    draining: Draining
    metrics: Metrics
    logger: Logger
