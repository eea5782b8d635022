"""This node among the others: what it owns and takes, where requests go, what it reads of others and tells them."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.groups.saved_offsets import CONFIG as OFFSETS_CONFIG
from siltlog.consumers.keeping.calls import KeeperCalls
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.served import Owned, ServedHeads
from siltlog.consumers.remote.system import ClusterSystem, system_calls
from siltlog.consumers.view import TopicView
from siltlog.infra import names
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.beat import Report
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.router import Away, Held, Here, Member, There
from siltlog.infra.cluster.routes import ViewRoutes
from siltlog.infra.cluster.view import ClusterView, TermEntry
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.part import Part
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.node import Node
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.peers.forwarding import Forwarding, not_owner, owner_away
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.infra.security.secret import PURPOSE_HOPS, read_secret
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import Metrics
from siltlog.ingest.assembly import Ingest, Shared
from siltlog.server.access.book import Security
from siltlog.server.cluster.joining import Joined
from siltlog.server.cluster.reach import Reach

VIEW, RELEASED = "/peers/view", "/peers/released"
TELL_SECONDS = 2.0
BODY_BYTES_MAX = 64 * 1024


class _View(msgspec.Struct, frozen=True):
    number: int


class _Released(msgspec.Struct, frozen=True):
    topic: str


_view = msgspec.json.Decoder(_View)
_released = msgspec.json.Decoder(_Released)


class Nodes:
    """Used on one event loop."""

    def __init__(
        self,
        node: Node,
        joined: Joined,
        ingest: Ingest,
        security: Security | None,
    ) -> None:
        """Raises ConfigError where the secret of the cluster cannot be read."""
        assert ingest.ownership is not None
        self._membership = membership = joined.membership
        self._ownership = ownership = ingest.ownership
        self._told: Callable[[int], None] = _nobody
        self._keep: Callable[[bool], None] = _keeps_nothing
        self._tasks: set[asyncio.Task[None]] = set()
        key = _key(node.settings, security)
        self.routes = ViewRoutes(
            lambda: membership.view,
            lambda: membership.journal,
            lambda: membership.fresh,
            ownership.held,
            self._awaited,
            lambda _: membership.look_soon(),
        )
        self.peers = Peers(
            key,
            node.clock,
            context=_context(node.settings),
            access_version=lambda: security.book.document.number if security else 0,
        )
        self.keepers = KeeperCalls(self.routes, self.peers, node.clock, self._make_offsets)
        self.forwarding = Forwarding(self.routes, self.peers, node.clock)
        self.hops = AcceptedHops(
            key,
            lambda: membership.journal,
            security.book.access if security else None,
            security.book.read_up if security else None,
        )
        self._heads = ServedHeads(Owned(lambda: self._serves().values(), self._refuse), node.clock)
        self.log = ClusterLog(ingest.log, self._owned, self.routes, self.peers, node.clock, node.logger, self.fresh)
        self.system = ClusterSystem(ingest.system, self.log, node.clock)
        self.calls: Mapping[str, PeerCall] = {
            **self._heads.calls,
            **system_calls(ingest.system, self._check_owned),
            VIEW: self._hear_view,
            RELEASED: self._hear_released,
        }
        self._reach = Reach(self._others, self._reached)
        self._reports = joined.reports
        joined.reports.add(self._report)
        membership.on_view(self._follow)
        self.part = Part(gauges=self._show, start=self._start, drain=self._drain, close=self._close)

    def changed(self) -> None:
        """What it owns, or waits for, is another."""
        self.routes.look()
        self._heads.look()
        self._membership.beat_soon()
        self._keep(self.keeps_offsets)

    def fresh(self) -> bool:
        """Whether its own newest beat is younger than the lease."""
        return self._membership.fresh

    @property
    def keeps_offsets(self) -> bool:
        return self._ownership.held(names.OFFSETS_TOPIC) is Held.OPEN

    def released(self, topic: str, to: TermEntry | None) -> None:
        """A topic was handed over: who is to have it need not look at its table to find out."""
        member = None if to is None else self._member(to.node)
        if member is not None and to is not None and member.journal == to.journal:
            self._begin(self._tell(member, RELEASED, _Released(topic)))

    def told_keeping(self, keep: Callable[[bool], None], redis_value: Callable[[], str]) -> None:
        """Has `keep` hear whether this node owns `_offsets`, from now on, and others what it finds in Redis."""
        self._keep = keep
        self._reports.add(lambda report: replace(report, redis=redis_value()))
        keep(self.keeps_offsets)

    def controllers_redis(self) -> str:
        """What the controller finds there."""
        return self._membership.controllers_redis

    async def _make_offsets(self) -> object:
        return await self.system.ensure(names.OFFSETS_TOPIC, 1, OFFSETS_CONFIG)

    def owner(self, topic: str) -> str:
        """The name of the node that owns a topic, as far as this one knows; empty where none does."""
        match self.routes.where(topic):
            case Here():
                return self._membership.node
            case There(member):
                return member.node
        return ""

    def told_views(self, told: Callable[[int], None]) -> None:
        """Has `told` hear the number of the newest view, from now on."""
        self._told = told
        told(self.routes.view)

    async def ready(self) -> None:
        """Returns once topics of other nodes can be read here."""
        self._follow(self._membership.view)
        await self.log.loaded()

    # What it is told.

    async def _hear_view(self, request: Request) -> Response:
        view = decode(await body_of(request, BODY_BYTES_MAX), _view).number
        self.routes.told(view)
        return json_reply({})

    async def _hear_released(self, request: Request) -> Response:
        self._ownership.look_again(decode(await body_of(request, BODY_BYTES_MAX), _released).topic)
        return json_reply({})

    def _follow(self, view: ClusterView) -> None:
        self._ownership.follow(view, self._membership.journal)
        self.routes.look()
        self._heads.look()
        self._told(view.number)
        if view.journal == self._membership.journal:
            # Who wrote it tells the others, who would look for it only each second.
            for member in self._others():
                self._begin(self._tell(member, VIEW, _View(view.number)))

    # What it tells.

    def _report(self, report: Report) -> Report:
        return replace(report, topics=self._ownership.report(), unreachable=self._reach.unreachable)

    def _begin(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, member: Member, path: str, said: msgspec.Struct) -> None:
        """Who does not hear it finds out by itself."""
        try:
            await self.peers.ask(
                member, "POST", path.encode(), (), msgspec.json.encode(said), identity=NODE, seconds=TELL_SECONDS
            )
        except (ConnectionFailed, PeerRefused):
            return

    async def _reached(self, member: Member) -> bool:
        """Whether it answers, whatever it says."""
        try:
            said = msgspec.json.encode(_View(self._membership.view.number))
            await self.peers.ask(member, "POST", VIEW.encode(), (), said, identity=NODE, seconds=TELL_SECONDS)
        except (ConnectionFailed, PeerRefused):
            return False
        return True

    def _others(self) -> list[Member]:
        members = [self._member(name) for name in self._membership.view.nodes if name != self._membership.node]
        return [member for member in members if member is not None]

    def _member(self, name: str) -> Member | None:
        entry = self._membership.view.nodes.get(name)
        return None if entry is None or entry.state == "away" else Member(name, entry.journal, entry.url)

    # What it owns.

    def _owned(self) -> Mapping[str, TopicView]:
        """What it owns, without what a newer view says is another's by now: that is about to be fenced here."""
        named, journal = self._membership.view.topics, self._membership.journal
        return {
            name: topic
            for name, topic in self._ownership.owned().items()
            if (entry := named.get(name)) is None or entry.entitled(journal) is not None
        }

    def _serves(self) -> Mapping[str, TopicView]:
        """What it tells others of. While its beats do not arrive, they may have gone on."""
        return self._owned() if self._membership.fresh else {}

    def _awaited(self, topic: str) -> str:
        """The node whose acknowledged records nobody else may go past."""
        waits = self._ownership.waits(topic)
        return waits.node if waits is not None and waits.awaited else ""

    def _check_owned(self, topic: str) -> None:
        """Raises Unavailable `not_owner`, `owner_away`. A topic that no view names is made here."""
        if self._ownership.held(topic) is not Held.OPEN and topic in self.routes.topics():
            self._refuse(topic)

    def _refuse(self, topic: str) -> None:
        match self.routes.where(topic):
            case Away(name, since_us):
                raise owner_away(topic, name, since_us)
        raise not_owner(topic, None, self.routes.view)

    # Its life.

    def _show(self, metrics: Metrics) -> None:
        metrics.totals(
            names.METRIC_PROXIED, "Requests that another node has answered", "topic", self.forwarding.proxied.items
        )

    def _start(self) -> None:
        self._ownership.start()
        self._reach.start()
        self.log.start()

    def _drain(self) -> None:
        self._heads.end()

    async def _close(self, patient: bool) -> bool:
        self._reach.stop()
        self.log.stop()
        for task in tuple(self._tasks):
            task.cancel()
        self.peers.close()
        return True


def _nobody(view: int) -> None:
    return


def _keeps_nothing(owned: bool) -> None:
    return


class News:
    """What the log says of what it owns, from before anybody can hear it."""

    def __init__(self) -> None:
        self._nodes: Nodes | None = None

    def hear(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def shared(self, membership: Membership) -> Shared:
        """What the log is given where its root is shared."""
        return Shared(
            placing=Placed(membership),
            changed=self.changed,
            released=self.released,
            seen=self._seen,
            owner=self._owner,
            journal=lambda: membership.journal,
            sealed=membership.reopen,
        )

    def _owner(self, topic: str) -> str:
        return "" if self._nodes is None else self._nodes.owner(topic)

    def _seen(self) -> ClusterLog:
        assert self._nodes is not None, "nobody is answered before there are nodes"
        return self._nodes.log

    def changed(self) -> None:
        if self._nodes is not None:
            self._nodes.changed()

    def released(self, topic: str, to: TermEntry | None) -> None:
        if self._nodes is not None:
            self._nodes.released(topic, to)


class Placed:
    """Has the controller place topics; `Placing` of the log."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._tasks: set[asyncio.Task[None]] = set()

    async def adopt(self, name: str, topic_id: str) -> None:
        await self._membership.ask("adopt", topic=name, topic_id=topic_id)

    def forget(self, name: str, topic_id: str) -> None:
        task = asyncio.create_task(self._forget(name, topic_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, name: str, topic_id: str) -> None:
        try:
            await self._membership.ask("forget", topic=name, topic_id=topic_id)
        except SiltlogError:
            return  # the controller finds that its table is gone


def _key(settings: ServerSettings, security: Security | None) -> bytes:
    """Without authentication and without a secret nothing is proven: then everybody may do everything."""
    if security is not None:
        return security.secret.key(PURPOSE_HOPS)
    return read_secret(Path(settings.secret_file)).key(PURPOSE_HOPS) if settings.secret_file else b""


def _context(settings: ServerSettings) -> Callable[[], ssl.SSLContext | None]:
    """Other nodes' certificates are of an authority that this machine trusts, or of that of its own."""
    if not settings.tls_cert:
        return lambda: ssl.create_default_context()
    context = ssl.create_default_context()
    context.load_verify_locations(settings.tls_cert)
    context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    return lambda: context
