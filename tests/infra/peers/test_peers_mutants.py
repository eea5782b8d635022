"""Each rule of requests that nodes pass on is needed: a mutant of each is noticed, between real doors on loopback."""

import asyncio
import dataclasses
import random
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trustme
import uvloop
from chaos import seeds
from forwarding_rig import KEY, NOTHING, WRITES, Node, nodes, publish
from msgspec.structs import replace
from mutants import Mutant, Patch, Play, hold, instead, noticed, plays
from tls_rig import Made

from siltlog.infra.client import core
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster import addresses, router
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.router import HERE, WAIT, Held, Here, Place, There, Wait
from siltlog.infra.cluster.router import Member as Called
from siltlog.infra.cluster.view import NodeEntry
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.http.memory import LARGE_SHARE, InFlight
from siltlog.infra.peers import body as bodies
from siltlog.infra.peers import forwarding, peers
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers import tls as node_tls
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.forwarding import _Request
from siltlog.infra.peers.hop import Asked, Hop, Session
from siltlog.infra.peers.peers import Peers
from siltlog.infra.peers.tls import PeerTls
from siltlog.infra.security.grant import EVERYTHING, Grant
from siltlog.infra.telemetry import logger

MIB = 1024 * 1024
NodesPlay = Callable[[random.Random], Coroutine[Any, Any, None]]


def between_nodes(play: NodesPlay) -> Play:
    @wraps(play)
    def run(seed: int, _: Path) -> None:
        uvloop.run(asyncio.wait_for(play(random.Random(seed)), 120))

    return run


MEMBERS = tuple(Called(name, f"{name}-7", f"http://{name}:7070") for name in "abc")


def who_has_it_answers_and_nobody_else(seed: int, _: Path) -> None:
    """CR1, CR2"""
    chance = random.Random(seed)
    for _n in range(200):
        this, owner, to = (chance.choice(MEMBERS) for _ in range(3))
        held, fresh = chance.choice([*Held]), chance.random() < 0.8
        place = Place(owner, chance.choice((None, to)))
        found = router.where(place, held, this.journal, fresh=fresh)
        if held is Held.OPEN:
            assert isinstance(found, Here if fresh else Wait), f"{found}: it has it, and its beat is fresh: {fresh}"
        else:
            assert not isinstance(found, Here), f"two answer: it is {held.value} here"
        if held in (Held.TAKING, Held.HOLDING):
            assert isinstance(found, Wait), f"{found} while it is {held.value}"


@between_nodes
async def a_request_goes_to_its_owner_as_it_came(chance: random.Random) -> None:
    """CR4, CR5"""
    async with nodes("a", "b", "c") as made:
        owner = chance.choice(made)
        for node in made:
            believed = chance.choice((owner, *made))
            node.routes.set("t", Place(believed.me), Held.OPEN if node is owner else Held.NOT)
        asked: list[tuple[Node, bool, Any]] = []
        for number in range(3):
            entry, direct = chance.choice(made), number == 2 and chance.random() < 0.8
            headers = {"Silt_Route": "direct"} if direct else {}
            body = chance.randbytes(chance.choice((0, 10, 70_000)))
            target = f"?timeout_ms=200&x=%20{number}"
            reply = await publish(entry, target, body, Authorization="Bearer x", Cookie="c=1", **headers)
            asked.append((entry, direct, reply))
            if reply.status == 202:
                assert reply.json["at"] == owner.me.node
                assert reply.json["target"] == f"v1/topics/t/records{target}", "it came as another"
                seen = owner.seen.pop()
                assert seen["body"] == body, "it came as another"
                shown = {"authorization", "cookie"} & seen["headers"].keys()
                assert entry is owner or not shown, f"{shown} are shown to a node that they were not shown to"
            if direct and entry is not owner:
                told = entry.routes.places["t"].owner
                assert told is not None and reply.status in (421, 503)
                assert reply.status == 503 or reply.json["node"] == told.node
                assert reply.status == 421 or told is entry.me, "a client that follows owners pays for two nodes"
        for node in made:
            assert not node.seen, "it was done twice, or by who does not own it"
            hops_made = sum(node.forwarding.proxied.values())
            entered = sum(entry is node and reply.status == 202 and node is not owner for entry, _, reply in asked)
            assert hops_made == entered, "a request makes more than one hop"


@between_nodes
async def a_planned_move_is_no_error(chance: random.Random) -> None:
    """CR6"""
    async with nodes("a", "b") as (a, b):
        moving = Place(a.me, to=b.me)
        size = chance.choice((10, 1_000, 60_000, MIB))
        if chance.random() < 0.5:
            a.routes.set("t", moving, Held.HOLDING)
            b.routes.set("t", moving)
            waiting = [asyncio.create_task(publish(node, body=b"x" * size)) for node in (a, b)]
            await asyncio.sleep(0.03)
            a.routes.set("t", moving, Held.RELEASED)
            b.routes.set("t", moving, Held.OPEN)
            for task in waiting:
                reply = await task
                assert (reply.status, reply.json.get("at")) == (202, "b"), f"a move is an error: {reply.body!r}"
            return
        a.routes.set("t", moving, Held.OPEN)
        b.routes.set("t", Place(b.me), Held.OPEN)

        async def let_go() -> None:
            a.routes.set("t", held=Held.RELEASED)
            raise problem("not_owner", "it was released")

        a.before = let_go
        reply = await publish(a, body=b"x" * size)
        if size < 64 * 1024:
            assert (reply.status, reply.json.get("at")) == (202, "b"), f"a move is an error: {reply.body!r}"
        else:
            assert reply.status == 503 and "retry-after" in reply.headers, f"{size} bytes are kept: {reply.body!r}"


@between_nodes
async def what_may_have_been_done_is_not_done_again(chance: random.Random) -> None:
    """CR7"""
    async with nodes("a", "b") as (a, b):
        a.routes.set("t", Place(b.me))
        b.routes.set("t", Place(b.me), Held.OPEN)

        async def cut_once() -> None:
            b.before = None
            b.door.cut()

        headers: dict[str, str] = chance.choice(({}, {}, {"Silt_Producer_Id": "p"}, {"Idempotency_Key": "k"}))
        b.before = cut_once
        reply = await publish(a, **headers)
        if headers:
            assert reply.status == 202, "what can be made twice is not"
        else:
            assert (reply.status, len(b.seen)) == (504, 1), "a record is there twice"


@between_nodes
async def what_was_done_is_not_refused(chance: random.Random) -> None:
    """CR7"""
    memory = InFlight(int((MIB + 50) / LARGE_SHARE) + 1, SystemClock())
    async with nodes("a", "b", in_flight={"a": memory}) as (a, b):
        a.routes.set("t", Place(b.me))
        b.routes.set("t", Place(b.me), Held.OPEN)
        b.padding = b"x" * chance.randrange(100, 1000)
        reply = await publish(a, body=b"x" * MIB)
        assert reply.status == 202, f"it is done, and said not to be: {reply.body!r}"


@between_nodes
async def who_may_is_decided_at_both(chance: random.Random) -> None:
    """CR8"""
    at_entry, at_owner = (chance.choice((WRITES, NOTHING)) for _ in range(2))
    revoked = chance.random() < 0.3

    def check(identity: Any) -> None:
        if revoked:
            raise problem("unauthenticated", "the key was revoked")

    async with nodes("a", "b", policies={"a": at_entry, "b": at_owner}, check=check) as (a, b):
        a.routes.set("t", Place(b.me))
        b.routes.set("t", Place(b.me), Held.OPEN)
        direct: dict[str, str] = chance.choice(({}, {"Silt_Route": "direct"}))
        reply = await publish(a, **direct)
        may = at_entry is at_owner is WRITES and not revoked
        assert (reply.status == 202) == (may and not direct), f"{reply.status} by {at_entry}, {at_owner}, {revoked}"
        assert bool(b.seen) == (may and not direct), "an entry node that is behind lets somebody in"
        assert reply.status == 421 if direct and at_entry is WRITES else reply.status != 421, "it is told where it is"


@between_nodes
async def who_says_nothing_is_left_once_he_is_no_member(chance: random.Random) -> None:
    """CR15"""
    with patch.object(peers, "HELLO_SECONDS", 60.0):
        async with nodes("a", "c") as (a, c):
            with socket.create_server(("127.0.0.1", 0)) as silent:
                gone = Called("b", "b-1", f"http://127.0.0.1:{silent.getsockname()[1]}")
                a.peers.follow({gone.journal, c.me.journal})
                a.routes.set("t", Place(gone))
                c.routes.set("t", Place(c.me), Held.OPEN)
                waiting = asyncio.create_task(publish(a, Silt_Producer_Id="p"))
                await asyncio.sleep(chance.choice((0.02, 0.05)))
                a.routes.set("t", Place(c.me))
                a.peers.follow({c.me.journal})
                try:
                    async with asyncio.timeout(LEFT_SECONDS):
                        reply = await asyncio.shield(waiting)
                except TimeoutError:
                    raise AssertionError("it waits for who has stopped") from None
                finally:
                    waiting.cancel()
                assert reply.json["at"] == "c"


LEFT_SECONDS = 15.0


def a_client_waits_for_an_owner_and_no_longer(seed: int, _: Path) -> None:
    """CR15"""
    chance = random.Random(seed)
    endpoints = Endpoints(["http://127.0.0.1:1", "http://127.0.0.1:2"])
    read_ms, owner_ms = chance.choice((2_000, 20_000, 60_000)), 5_000
    request = core.Request("POST", "/v1/topics/t/records", read_timeout_ms=read_ms, owner_timeout_ms=owner_ms)
    assert endpoints.send(request).request.read_timeout_ms == read_ms, "no cluster is known yet"
    endpoints.answered(endpoints.current, core.Response(200, {"silt-view": "3"}, b""))
    asked = endpoints.send(request)
    assert asked.request.read_timeout_ms <= owner_ms, "who was stopped closes no connection"
    endpoints.failed(asked.url, request.path)
    again = endpoints.send(request)
    assert again.url != asked.url and again.request.headers.get("Silt-Route") != "direct", "it hangs on who is gone"


URLS = ("http://127.0.0.1:1", "http://127.0.0.1:2", "https://a", "https://b", "http://10.0.0.1:1", "http://10.0.0.2:1")


def a_client_follows_owners_as_safely_as_it_came(seed: int, _: Path) -> None:
    """CR12"""
    chance = random.Random(seed)
    path = "/v1/topics/t/records"
    request = core.Request("POST", path)
    for _n in range(60):
        given = chance.choice(URLS)
        endpoints = Endpoints(given)
        views = [chance.randrange(1, 9) for _ in range(2)]
        endpoints.answered(given, core.Response(200, {"silt-view": str(views[0])}, b""))
        owner = chance.choice(URLS)
        members = {"url": owner, "view": views[1]}
        error = SiltlogError("d", error_code="not_owner", members=members)
        followed = endpoints.told(given, request, error)
        went = endpoints.send(request).url
        safe = owner.split(":")[0] == given.split(":")[0] and ("127." in owner or "127." not in given)
        assert not followed or safe or owner == given, f"a token goes from {given} to {owner}"
        assert not followed or views[1] >= views[0], "what an older view says is followed"
        assert went == (owner if followed else given)
        if followed:
            endpoints.failed(owner, path)
            again = endpoints.send(request)
            assert again.url == given or again.url != owner, "it hangs on a node that is gone"


def what_a_node_says_counts_once_and_for_what_it_was_said(seed: int, _: Path) -> None:
    """CR3"""
    chance = random.Random(seed)
    ours, theirs = chance.randbytes(32), chance.randbytes(32)
    session = Session(ours=theirs, theirs=ours)
    asked = Asked.of("POST", b"/v1/topics/t/records", [(b"content-type", b"text/plain")])
    body = hops.digest(b"body")
    said = hops.signed(KEY, ours, theirs, Hop("j", n := chance.randrange(1, 9), "key:a"), asked, body)
    assert hops.verified(KEY, replace(session), said, asked, "j")[1] == body
    others: dict[str, Callable[[], object]] = {
        "another secret": lambda: hops.verified(b"o" * 32, replace(session), said, asked, "j"),
        "another connection": lambda: hops.verified(KEY, replace(session, ours=b"x" * 32), said, asked, "j"),
        "another node": lambda: hops.verified(KEY, replace(session), said, asked, "j2"),
        "a second time": lambda: hops.verified(KEY, replace(session, n=n), said, asked, "j"),
        "another method": lambda: hops.verified(KEY, replace(session), said, replace(asked, method="PUT"), "j"),
        "another target": lambda: hops.verified(KEY, replace(session), said, replace(asked, target=b"/u"), "j"),
        "other fields": lambda: hops.verified(
            KEY, replace(session), said, Asked.of("POST", asked.target, [(b"content-type", b"text/html")]), "j"
        ),
        "another body": lambda: hops.verified(
            KEY, replace(session), _with_body(said, hops.digest(b"bodY")), asked, "j"
        ),
        "no secret": lambda: hops.welcomed(KEY, ours, hops.welcome(b"o" * 32, ours, theirs)),
    }
    for what, verify in others.items():
        try:
            verify()
        except SiltlogError:
            continue
        raise AssertionError(f"it counts with {what}")


def _with_body(said: str, digest: bytes) -> str:
    first, _, proof = said.split(" ")
    return f"{first} {hops._text(digest)} {proof}"


def an_address_counts_with_its_proof(seed: int, _: Path) -> None:
    """CR16"""
    chance = random.Random(seed)
    ours = Addresses(KEY, "c")
    said = ["n", "j", "http://h"]
    entry = NodeEntry(data_dir="d", place="p", journal=said[1], url=said[2], proof=ours.proof(*said))
    assert ours.member("n", entry) == Called(*said)
    wrong: dict[str, tuple[Addresses, str, NodeEntry]] = {
        "node": (ours, "m", entry),
        "journal": (ours, "n", replace(entry, journal="k")),
        "url": (ours, "n", replace(entry, url="http://his")),
        "cluster": (Addresses(KEY, "other"), "n", entry),
        "secret": (Addresses(b"o" * 32, "c"), "n", entry),
        "proof": (ours, "n", replace(entry, proof="")),
    }
    for what in chance.sample([*wrong], 4):
        by, node, found = wrong[what]
        assert by.member(node, found) is None, f"who writes the root has another {what} called"


def _shakes_hands(context: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """Whether a client takes the server for that host."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        context.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = [False, False]
    for _ in range(20):
        for at, end in enumerate(ends):
            try:
                end.do_handshake()
                done[at] = True
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
        if all(done):
            return True
    return False


AUTHORITIES = tuple(trustme.CA() for _ in range(2))


def nodes_are_asked_whose_certificate_fits(seed: int, folder: Path) -> None:
    """CR14"""
    chance = random.Random(seed)
    ours, theirs = AUTHORITIES[0], chance.choice(AUTHORITIES)
    hosts = chance.sample(("n1", "n2", "n3"), 2)
    (folder / "ours").mkdir()
    made = Made(folder / "ours", ours)
    path = folder / "authorities.pem"
    ours.cert_pem.write_to_path(str(path))
    tls = PeerTls(
        str(made.files.certificate), str(made.files.key), str(path), SystemClock(), logger("critical", "json")
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.issue_cert(hosts[0]).configure_cert(server)
    for host in hosts:
        fits = theirs is ours and host == hosts[0]
        assert _shakes_hands(tls.context(), server, host) == fits, f"{host}: whoever stands between is asked"
    # Files change one by one, and those that fit each other count for the next connection.
    before, key = tls.context(), made.files.key.read_bytes()
    made.issue()
    new_key = made.files.key.read_bytes()
    made.files.key.write_bytes(key)
    assert tls.context() is before, "files that do not fit each other are used"
    made.files.key.write_bytes(new_key)
    assert tls.context() is not before, "a certificate that was replaced is shown no more"


def _by_the_view(patch: Patch) -> None:
    where = router.where

    def mutant(place: Place | None, held: Held, this: str, **rest: Any) -> Any:
        if place is not None and place.owner is not None:
            return HERE if place.owner.journal == this else There(place.owner)
        return where(place, held, this, **rest)

    patch.setattr(router, "where", mutant)


def _nobody_waits(patch: Patch) -> None:
    where = router.where

    def mutant(place: Place | None, held: Held, this: str, **rest: Any) -> Any:
        found = where(place, held, this, **rest)
        target = place.to or place.owner if place else None
        return There(target) if found == WAIT and held in (Held.TAKING, Held.HOLDING) and target else found

    patch.setattr(router, "where", mutant)


def _always_fresh(patch: Patch) -> None:
    where = router.where
    patch.setattr(router, "where", lambda *of, fresh=True, **rest: where(*of, **rest))


def _made(change: Callable[[_Request], None]) -> Callable[[Patch], None]:
    """Requests that begin otherwise."""
    begin = _Request.__init__

    def mutant(self: _Request, *of: Any, **rest: Any) -> None:
        begin(self, *of, **rest)
        change(self)

    return instead(_Request, "__init__", mutant)


def _passes_on_what_it_was_passed(request: _Request) -> None:
    request._asked = False
    request._direct = forwarding._direct(request._scope)


def _waits_for_nothing(request: _Request) -> None:
    request._deadline = 0.0


def _no_check(patch: Patch) -> None:
    begin = AcceptedHops.__init__

    def mutant(self: AcceptedHops, *of: Any, **rest: Any) -> None:
        begin(self, *of, **{**rest, "check": None})

    patch.setattr(AcceptedHops, "__init__", mutant)


def _trusts_the_entry(patch: Patch) -> None:
    accept = AcceptedHops.accept

    async def mutant(self: AcceptedHops, *of: Any) -> Any:
        return EVERYTHING, (await accept(self, *of))[1]

    patch.setattr(AcceptedHops, "accept", mutant)


def _asks_the_owner_alone(patch: Patch) -> None:
    """The entry lets everybody in; the owner is asked anew."""
    require = Grant.require

    def mutant(self: Grant, *of: Any, **rest: Any) -> Any:
        return require(self, *of, **rest) if self in at_owners else None

    accept = AcceptedHops.accept
    at_owners: list[Grant] = []

    async def accepted(self: AcceptedHops, *of: Any) -> Any:
        found = await accept(self, *of)
        at_owners.append(found[0])
        return found

    patch.setattr(AcceptedHops, "accept", accepted)
    patch.setattr(Grant, "require", mutant)


def _follows_and_lets_nobody_go(self: Peers, journals: Any) -> None:
    self._members = journals


def _waits_as_long_for_owners(patch: Patch) -> None:
    send = Endpoints.send
    patch.setattr(
        Endpoints,
        "send",
        lambda self, request: send(self, dataclasses.replace(request, owner_timeout_ms=None)),
    )


def _heeds_no_view(patch: Patch) -> None:
    told = Endpoints.told

    def mutant(self: Endpoints, url: str, request: core.Request, error: SiltlogError) -> bool:
        view, self.view = self.view, 0
        try:
            return told(self, url, request, error)
        finally:
            self.view = view

    patch.setattr(Endpoints, "told", mutant)


def _stays_with_who_is_gone(self: Endpoints, url: str, path: str = "") -> None:
    """Nothing is learned of it."""


def _counts_again(patch: Patch) -> None:
    verified = hops.verified

    def mutant(key: bytes, session: Session, *of: Any) -> Any:
        session.n = 0
        return verified(key, session, *of)

    patch.setattr(hops, "verified", mutant)


def _signs_less(*left_out: int) -> Callable[[Patch], None]:
    """Some parts are not signed: of what is said, the method, the target, the fields and the body."""
    mac = hops._mac

    def mutant(key: bytes, purpose: bytes, *parts: bytes) -> bytes:
        kept = [b"" if purpose == b"hop" and at in left_out else part for at, part in enumerate(parts)]
        return mac(key, purpose, *kept)

    return instead(hops, "_mac", mutant)


def _for_anybody(patch: Patch) -> None:
    verified = hops.verified

    def mutant(key: bytes, session: Session, said: str, asked: Asked, journal: str) -> Any:
        meant = hops._HOP.decode(hops._bytes(said.split(" ")[0])).to
        return verified(key, session, said, asked, meant)

    patch.setattr(hops, "verified", mutant)


def _welcomes_anybody(patch: Patch) -> None:
    patch.setattr(hops, "welcomed", lambda key, asking, said: hops._bytes(said.partition(" ")[0]))


def _proves_without(at: int) -> Callable[[Patch], None]:
    proof = Addresses.proof

    def mutant(self: Addresses, *said: str) -> str:
        return proof(self, *("" if number == at else part for number, part in enumerate(said)))

    return instead(Addresses, "proof", mutant)


def _takes(changed: Callable[[ssl.SSLContext], None]) -> Callable[[Patch], None]:
    loaded = PeerTls._loaded

    def mutant(self: PeerTls) -> ssl.SSLContext:
        context = loaded(self)
        changed(context)
        return context

    return instead(PeerTls, "_loaded", mutant)


def _any_host(context: ssl.SSLContext) -> None:
    context.check_hostname = False


def _any_authority(context: ssl.SSLContext) -> None:
    for authority in AUTHORITIES:
        authority.configure_trust(context)


def _read_once(patch: Patch) -> None:
    patch.setattr(node_tls, "versions_of", lambda paths: ())


def _takes_what_does_not_fit(patch: Patch) -> None:
    loaded = PeerTls._loaded

    def mutant(self: PeerTls) -> ssl.SSLContext:
        try:
            return loaded(self)
        except ConfigError:
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    patch.setattr(PeerTls, "_loaded", mutant)


MUTANTS: dict[str, Mutant] = {
    "CR1 the view says who answers": Mutant(who_has_it_answers_and_nobody_else, _by_the_view),
    "CR1 nobody waits for a claim": Mutant(who_has_it_answers_and_nobody_else, _nobody_waits),
    "CR2 an old beat counts": Mutant(who_has_it_answers_and_nobody_else, _always_fresh),
    "CR3 what was overheard counts again": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _counts_again),
    "CR3 it counts at any node": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _for_anybody),
    "CR3 the method is not signed": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _signs_less(3)),
    "CR3 the target is not signed": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _signs_less(4)),
    "CR3 fields are not signed": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _signs_less(5)),
    "CR3 the body is not signed": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _signs_less(6)),
    "CR3 challenges are not signed": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _signs_less(0, 1)),
    "CR3 who answers proves nothing": Mutant(what_a_node_says_counts_once_and_for_what_it_was_said, _welcomes_anybody),
    "CR4 credentials go along": Mutant(
        a_request_goes_to_its_owner_as_it_came,
        instead(forwarding, "_KEPT_HERE", forwarding._KEPT_HERE - {b"authorization", b"cookie"}),
    ),
    "CR4 it makes as many hops as it takes": Mutant(
        a_request_goes_to_its_owner_as_it_came, _made(_passes_on_what_it_was_passed), 2
    ),
    "CR5 who follows owners is passed on": Mutant(
        a_request_goes_to_its_owner_as_it_came, instead(forwarding, "_direct", lambda scope: False)
    ),
    "CR6 nobody waits at a hand-over": Mutant(a_planned_move_is_no_error, _made(_waits_for_nothing), 2),
    "CR6 what was begun is refused": Mutant(
        a_planned_move_is_no_error, instead(_Request, "_begin_again", lambda self: False), 1
    ),
    "CR6 any body is kept": Mutant(a_planned_move_is_no_error, instead(bodies, "SMALL_BYTES", 1 << 30)),
    "CR7 all is sent again": Mutant(
        what_may_have_been_done_is_not_done_again, instead(_Request, "_may_repeat", lambda self: True), 1
    ),
    "CR7 the entry refuses what was done": Mutant(
        what_was_done_is_not_refused, instead(forwarding, "_counting", lambda method, held: held.take)
    ),
    "CR8 the entry decides nothing": Mutant(who_may_is_decided_at_both, _asks_the_owner_alone),
    "CR8 the owner decides nothing": Mutant(who_may_is_decided_at_both, _trusts_the_entry, 2),
    "CR8 revoked keys count at the owner": Mutant(who_may_is_decided_at_both, _no_check, 2),
    "CR12 any address is followed": Mutant(
        a_client_follows_owners_as_safely_as_it_came, instead(Endpoints, "follows", lambda *_: True)
    ),
    "CR12 any view is followed": Mutant(a_client_follows_owners_as_safely_as_it_came, _heeds_no_view),
    "CR12 it stays with who is gone": Mutant(
        a_client_follows_owners_as_safely_as_it_came, instead(Endpoints, "failed", _stays_with_who_is_gone)
    ),
    "CR14 any host will do": Mutant(nodes_are_asked_whose_certificate_fits, _takes(_any_host)),
    "CR14 any authority will do": Mutant(nodes_are_asked_whose_certificate_fits, _takes(_any_authority)),
    "CR14 files are read once": Mutant(nodes_are_asked_whose_certificate_fits, _read_once),
    "CR14 what does not fit is used": Mutant(nodes_are_asked_whose_certificate_fits, _takes_what_does_not_fit),
    "CR15 who has stopped is waited for": Mutant(
        who_says_nothing_is_left_once_he_is_no_member, instead(Peers, "follow", _follows_and_lets_nobody_go)
    ),
    "CR15 a client waits as long for an owner": Mutant(
        a_client_waits_for_an_owner_and_no_longer, _waits_as_long_for_owners
    ),
    "CR16 any address counts": Mutant(
        an_address_counts_with_its_proof, instead(addresses.Addresses, "counts", lambda *_: True)
    ),
    "CR16 a proof is for any node": Mutant(an_address_counts_with_its_proof, _proves_without(0)),
    "CR16 a proof is for any journal": Mutant(an_address_counts_with_its_proof, _proves_without(1)),
    "CR16 a proof is for any address": Mutant(an_address_counts_with_its_proof, _proves_without(2)),
}


RULES = ("CR1", "CR2", "CR3", "CR4", "CR5", "CR6", "CR7", "CR8", "CR12", "CR14", "CR15", "CR16")


@pytest.mark.rule("CR1", "CR2", "CR3", "CR4", "CR5", "CR6", "CR7", "CR8", "CR12", "CR14", "CR15", "CR16")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_requests_between_nodes_keep_their_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(2), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LEFT_SECONDS", 0.5)
    noticed(MUTANTS[name], tmp_path)
