"""This node among the others: what it owns and takes, where requests go, what it reads of others and tells them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.keeping.calls import KeeperCalls
from siltlog.consumers.keeping.saved_offsets import CONFIG as OFFSETS_CONFIG
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.served import Owned, ServedHeads
from siltlog.consumers.remote.system import ClusterSystem, system_calls
from siltlog.infra import names
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.beat import Report, WishKind
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.router import Away, Held, Here, Member, There
from siltlog.infra.cluster.routes import ViewRoutes
from siltlog.infra.cluster.view import ClusterView, TermEntry
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.part import Part
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.peers.forwarding import Forwarding, not_owner, owner_away
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.infra.peers.tls import PeerTls
from siltlog.infra.security.sessions import EndedSession
from siltlog.ingest.assembly import Ingest, Shared
from siltlog.server.access.security import Security
from siltlog.server.cluster.agreement import Agreement
from siltlog.server.cluster.joining import Joined
from siltlog.server.cluster.owned import OwnedTopics
from siltlog.server.cluster.reach import Reach

VIEW, RELEASED, ACCESS = "/peers/view", "/peers/released", "/peers/access"
TELL_SECONDS = 2.0
PLACED_SECONDS = 2.0
"""How long who made a topic waits until it can be used here; its owner takes it all the same."""
BODY_BYTES_MAX = 64 * 1024


class _View(msgspec.Struct, frozen=True):
    number: int


class _Released(msgspec.Struct, frozen=True):
    topic: str


class _AccessNews(msgspec.Struct, frozen=True):
    """A version of who may do what, keys that count no more, and sessions of the page that were ended."""

    version: int = 0
    revoked: tuple[str, ...] = ()
    ended: dict[str, EndedSession] = {}


_view = msgspec.json.Decoder(_View)
_released = msgspec.json.Decoder(_Released)
_access_news = msgspec.json.Decoder(_AccessNews)


class Nodes:
    """Used on one event loop."""

    def __init__(
        self,
        node: Node,
        joined: Joined,
        ingest: Ingest,
        security: Security | None,
    ) -> None:
        """Raises ConfigError where a file of TLS cannot be read."""
        assert ingest.ownership is not None
        self.membership = membership = joined.membership
        self._addresses = membership.addresses
        self._clock = node.clock
        self._ownership = ownership = ingest.ownership
        self._told: Callable[[int], None] = _nobody
        self._keep: Callable[[bool], None] = _keeps_nothing
        self._tasks: set[asyncio.Task[None]] = set()
        settings = node.settings
        key = joined.key
        self.routes = ViewRoutes(
            lambda: membership.view,
            lambda: membership.journal,
            lambda: membership.fresh,
            ownership.held,
            self._awaited,
            lambda _: membership.look_soon(),
            membership.addresses,
        )
        tls = PeerTls(settings.tls_cert, settings.tls_key, settings.tls_peer_ca, node.clock, node.logger)
        self.peers = Peers(
            key,
            node.clock,
            context=tls.context,
            access_version=lambda: security.book.document.number if security else 0,
        )
        self.keepers = KeeperCalls(self.routes, self.peers, node.clock, self._make_offsets)
        self.forwarding = Forwarding(self.routes, self.peers, node.clock, lambda topic: self.log.opened(topic))
        self.hops = AcceptedHops(
            key,
            lambda: membership.journal,
            security.book.access if security else None,
            security.book.read_up if security else None,
            security.book.check_named if security else None,
        )
        owned = OwnedTopics(ingest.log.topic_logs, lambda: membership.view, lambda: membership.journal)
        # What it tells others of: while its beats do not arrive, they may have gone on.
        self._heads = ServedHeads(Owned(lambda: owned if membership.fresh else {}, self._refuse), node.clock)
        self.log = ClusterLog(ingest.log, lambda: owned, self.routes, self.peers, node.clock, node.logger, self.fresh)
        self.system = ClusterSystem(ingest.system, self.log, node.clock)
        self.calls: Mapping[str, PeerCall] = {
            **self._heads.calls,
            **system_calls(ingest.system, self._check_owned),
            VIEW: self._hear_view,
            RELEASED: self._hear_released,
            **({ACCESS: partial(self._hear_access, security)} if security else {}),
        }
        self._agreement = Agreement(settings.auth, node.clock, lambda: dict(membership.view.members()), node.logger)
        self.warnings = self._agreement.warnings
        self._reach = Reach(self._others, self._reached, node.logger, self._unproven)
        self._reports = joined.reports
        joined.reports.add(self._report)
        membership.on_view(self._follow)
        self.part = Part(gauges=self._show, start=self._start, drain=self._drain, close=self._close)

    def changed(self) -> None:
        """What it owns, or waits for, is another."""
        self.routes.look()
        self._heads.look()
        self.membership.beat_soon()
        self._keep(self.keeps_offsets)

    def fresh(self) -> bool:
        """Whether its own newest beat is younger than the lease."""
        return self.membership.fresh

    @property
    def keeps_offsets(self) -> bool:
        return self._ownership.held(names.OFFSETS_TOPIC) is Held.OPEN

    def released(self, topic: str, to: TermEntry | None) -> None:
        """A topic was handed over: who is to have it need not look at its table to find out."""
        member = None if to is None else self.member(to.node)
        if member is not None and to is not None and member.journal == to.journal:
            self._begin(self._tell(member, RELEASED, _Released(topic)))

    def changed_access(self, version: int, revoked: Collection[str]) -> "asyncio.Future[Any] | None":
        """Tells all nodes that access was changed here, so that it holds on every one at once; what is done once all
        have heard it that answer."""
        telling = self._tell_access(_AccessNews(version, tuple(revoked)))
        return asyncio.gather(*telling, return_exceptions=True) if telling else None

    def ended_sessions(self, ended: Mapping[str, EndedSession]) -> None:
        """Sessions of the page were ended here: they are on every node at once."""
        self._tell_access(_AccessNews(ended=dict(ended)))

    def _tell_access(self, news: _AccessNews) -> list[asyncio.Task[None]]:
        return [self._begin(self._tell(member, ACCESS, news, times=2)) for member in self._others()]

    def told_keeping(self, keep: Callable[[bool], None], reported: Callable[[Report], Report]) -> None:
        """Has `keep` hear whether this node owns `_offsets`, from now on, and others what it finds in Redis."""
        self._keep = keep
        self._reports.add(reported)
        keep(self.keeps_offsets)

    def controllers_redis(self) -> str:
        """What the controller finds there."""
        return self.membership.controllers_redis

    async def _make_offsets(self) -> object:
        return await self.system.ensure(names.OFFSETS_TOPIC, 1, OFFSETS_CONFIG)

    def owner(self, topic: str) -> str:
        """The name of the node that owns a topic, as far as this one knows; empty where none does."""
        match self.routes.where(topic):
            case Here():
                return self.membership.node
            case There(member):
                return member.node
        return ""

    async def placed(self, topic: str, topic_id: str) -> None:
        """Returns once a topic that was made can be read here, and is open if this node is to own it; or soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PLACED_SECONDS):
                await self._ownership.placed(topic, topic_id)
                await self.log.opened(topic)

    def told_views(self, told: Callable[[int], None]) -> None:
        """Has `told` hear the number of the newest view, from now on."""
        self._told = told
        told(self.routes.view)

    async def ready(self) -> None:
        """Returns once topics of other nodes can be read here."""
        self._follow(self.membership.view)
        await self.log.loaded()

    # What it is told.

    async def _hear_view(self, request: Request) -> Response:
        view = decode(await body_of(request, BODY_BYTES_MAX), _view).number
        self.routes.told(view)
        return json_reply(self._agreement.says())

    async def _hear_released(self, request: Request) -> Response:
        self._ownership.look_again(decode(await body_of(request, BODY_BYTES_MAX), _released).topic)
        return json_reply({})

    async def _hear_access(self, security: Security, request: Request) -> Response:
        news = decode(await body_of(request, BODY_BYTES_MAX), _access_news)
        await security.ends.hear(news.ended)
        await security.book.hear(news.version, news.revoked)
        return json_reply({})

    def _follow(self, view: ClusterView) -> None:
        self._ownership.follow(view, self.membership.journal)
        self.peers.follow({entry.journal for _, entry in view.members()})
        self.routes.look()
        self._heads.look()
        self._told(view.number)
        if view.journal == self.membership.journal:
            # Who wrote it tells the others, who would look for it only each second.
            for member in self._others():
                self._begin(self._tell(member, VIEW, _View(view.number)))

    # What it tells.

    def _report(self, report: Report) -> Report:
        return replace(report, topics=self._ownership.report(), unreachable=self._reach.unreachable)

    def _begin(self, telling: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tell(self, member: Member, path: str, said: msgspec.Struct, *, times: int = 1) -> None:
        """Tells a member something; one that does not hear it finds out by itself, later."""
        content = msgspec.json.encode(said)
        for _ in range(times):
            with suppress(ConnectionFailed, PeerRefused):
                await self.peers.ask(member, "POST", path.encode(), (), content, identity=NODE, seconds=TELL_SECONDS)
                return

    async def _reached(self, member: Member) -> str:
        """Why it does not answer; empty where it does, whatever it says."""
        asked_us = self._clock.now_us()
        try:
            said = msgspec.json.encode(_View(self.membership.view.number))
            reply = await self.peers.ask(member, "POST", VIEW.encode(), (), said, identity=NODE, seconds=TELL_SECONDS)
        except (ConnectionFailed, PeerRefused) as failed:
            return str(failed)
        if reply.status == HTTPStatus.OK:
            with suppress(msgspec.MsgspecError):
                self._agreement.hear(member.node, reply.body, asked_us)
        return ""

    def _others(self) -> list[Member]:
        members = [self.member(name) for name in self.membership.view.nodes if name != self.membership.node]
        return [member for member in members if member is not None]

    def _unproven(self) -> list[str]:
        """The members that are not called where the view says: what they own nobody would reach through this node."""
        members = self.membership.view.members()
        return [name for name, entry in members if not self._addresses.counts(name, entry)]

    def member(self, name: str) -> Member | None:
        """A node that is not away; None where there is no such node."""
        entry = self.membership.view.nodes.get(name)
        return None if entry is None or entry.state == "away" else self._addresses.member(name, entry)

    # What it owns.

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
        metrics.gauge(catalogue.TOPICS_OWNED, lambda: len(self._ownership.owned()))
        metrics.gauge(catalogue.TOPICS_WAITING, lambda: self._ownership.waiting)
        metrics.totals(catalogue.TOPICS_TAKEN, self._ownership.taken.items)
        metrics.totals(catalogue.TOPICS_LET_GO, self._ownership.let_go.items)
        metrics.gauge(catalogue.CLUSTER_UNREACHABLE, lambda: len(self._reach.unreachable))
        metrics.totals(catalogue.PROXIED, self.forwarding.proxied.items)

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
            placing=Placed(membership, self._placed),
            changed=self.changed,
            released=self.released,
            seen=self._seen,
            owner=self._owner,
            journal=lambda: membership.journal,
            sealed=membership.reopen,
        )

    async def _placed(self, topic: str, topic_id: str) -> None:
        if self._nodes is not None:
            await self._nodes.placed(topic, topic_id)

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

    def changed_access(self, version: int, revoked: Collection[str]) -> "asyncio.Future[Any] | None":
        return None if self._nodes is None else self._nodes.changed_access(version, revoked)

    def ended_sessions(self, ended: Mapping[str, EndedSession]) -> None:
        if self._nodes is not None:
            self._nodes.ended_sessions(ended)


class Placed:
    """Has the controller place topics; `Placing` of the log."""

    def __init__(self, membership: Membership, placed: Callable[[str, str], Awaitable[None]]) -> None:
        """`placed(topic, topic_id)` returns once a topic that a view names can be used here."""
        self._membership = membership
        self._placed = placed
        self._asking: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    async def adopt(self, name: str, topic_id: str, node: str) -> None:
        await self._membership.ask("adopt", node=node, topic=name, topic_id=topic_id)
        await self._placed(name, topic_id)

    def forget(self, name: str, topic_id: str) -> None:
        self._ask("forget", name, topic_id)

    def want(self, name: str) -> None:
        self._ask("move", name, node=self._membership.node)

    def _ask(self, kind: WishKind, name: str, topic_id: str = "", node: str = "") -> None:
        """Whoever asks does so again where nothing came of it."""
        key = (kind, name, topic_id)
        if key not in self._asking:
            asked = self._membership.ask(kind, node=node, topic=name, topic_id=topic_id)
            task = self._asking[key] = asyncio.create_task(_quietly(asked))
            task.add_done_callback(lambda _: self._asking.pop(key))


async def _quietly(asked: Awaitable[None]) -> None:
    with suppress(SiltlogError):
        await asked
