"""The access document on a node: followed, changed, and held on to while the object store is away."""

import asyncio
import errno
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, secured_server
from kept_log import KeptLog

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, SiltlogError, Unauthenticated, problem
from siltlog.infra.security import documents as documents_module
from siltlog.infra.security.access import LOCAL, Binding, Subject
from siltlog.infra.security.callers.api_keys import ApiKeys
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.security.grant import Grant, Identity
from siltlog.infra.security.keys import ApiKey, hash_of, make_key
from siltlog.infra.security.private_file import replace_private
from siltlog.infra.security.secret import PURPOSE_ACCESS, PURPOSE_KEYS
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import Put, open_store
from siltlog.infra.telemetry import logger
from siltlog.server.access import book as book_module
from siltlog.server.access import held as held_module
from siltlog.server.access.book import AWAY_SECONDS, AccessBook
from siltlog.server.access.changes import with_key, with_part
from siltlog.server.access.held import HeldRevocations
from siltlog.server.access.security import open_secret

HASH_KEY, MAC_KEY = bytes(range(32)), bytes(range(1, 33))
STALE_MS = 60_000


class SteppedClock(SystemClock):
    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


class Away(LocalStore):
    """A store that can be away."""

    away = False

    def _answers(self) -> None:
        if self.away:
            raise problem("topic_unavailable", "the store does not answer")

    def get(self, path: str) -> bytes:
        self._answers()
        return super().get(path)

    def list(self, *arguments: Any, **more: Any) -> Any:
        self._answers()
        return super().list(*arguments, **more)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        self._answers()
        return super().put_if_absent(path, data)


class Node:
    def __init__(self, folder: Path, name: str, store: LocalStore) -> None:
        self.clock = SteppedClock()
        log = logger("critical", "json")
        documents = AccessDocuments(store, "c1", MAC_KEY, folder / f"seen-{name}", self.clock, log)
        documents.open()
        self.keys = ApiKeys(HASH_KEY, self.clock)
        self.held_file = folder / f"held-{name}"
        self.book = AccessBook(
            documents,
            HeldRevocations(self.held_file),
            self.keys,
            (self.keys,),
            clock=self.clock,
            logger=log,
            stale_ms=STALE_MS,
            tell=self._tell,
        )
        self.told: list[tuple[int, tuple[str, ...]]] = []
        self.hears: asyncio.Future[None] | None = None
        """Done once others have heard of what is told; None where there are none."""

    def _tell(self, version: int, revoked: Collection[str]) -> "asyncio.Future[None] | None":
        self.told.append((version, tuple(revoked)))
        return self.hears

    async def make(self, name: str) -> ApiKey:
        key = make_key(secrets.token_bytes)
        kept = KeptKey(name, hash_of(key, HASH_KEY), self.clock.now_us())
        await self.book.change(with_key(key.key_id, kept, [("admin", "")], 0))
        return key

    def counts(self, key: ApiKey) -> bool:
        return self.keys.known(key.text()) is not None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Node]:
    monkeypatch.setattr(book_module, "FOLLOW_SECONDS", 0.01)
    (tmp_path / "root").mkdir()
    store = Away(str(tmp_path / "root"))

    def node(name: str) -> Node:
        made = Node(tmp_path, name, store)
        made.store = store  # type: ignore[attr-defined]
        return made

    return node


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never held")


def run(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 30))  # type: ignore[arg-type]


@pytest.mark.rule("A53")
def test_a_change_is_answered_once_others_have_heard_of_it(
    world: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "TOLD_SECONDS_MAX", 3_600.0)

    async def body() -> None:
        here = world("here")
        heard = here.hears = asyncio.get_running_loop().create_future()
        making = asyncio.create_task(here.make("ana"))
        await until(lambda: here.told == [(1, ())])
        assert not (await asyncio.wait((making,), timeout=0.05))[0], "who goes to another node is nobody there yet"
        heard.set_result(None)
        key = await making
        heard = here.hears = asyncio.get_running_loop().create_future()
        revoking = asyncio.create_task(here.book.revoke(key.key_id))
        await until(lambda: len(here.told) == 3)
        assert not here.counts(key)
        assert not (await asyncio.wait((revoking,), timeout=0.05))[0]
        heard.set_result(None)
        assert await revoking
        # One that does not answer keeps nobody waiting for long.
        monkeypatch.setattr(book_module, "TOLD_SECONDS_MAX", 0.01)
        here.hears = asyncio.get_running_loop().create_future()
        await here.make("bob")

    run(body)


@pytest.mark.rule("A53")
def test_what_is_told_holds_at_once_and_a_revocation_also_while_the_store_is_away(
    world: Callable[[str], Node],
) -> None:
    async def body() -> None:
        here, there = world("here"), world("there")
        key, other = await here.make("ana"), await here.make("bob")
        assert [version for version, _ in here.told] == [1, 2], "each change is told, once"
        for version, revoked in here.told:
            await there.book.hear(version, revoked)
        assert there.counts(key) and there.counts(other)
        assert there.told == [], "who was told tells nobody"
        here.store.away = True  # type: ignore[attr-defined]
        assert not await asyncio.wait_for(here.book.revoke(key.key_id), 10)
        assert here.told[2:] == [(2, (key.key_id,))]
        await there.book.hear(*here.told[-1])
        assert not there.counts(key) and there.counts(other)
        assert HeldRevocations(there.held_file).ids == {key.key_id}, "it outlives the process there, too"
        here.store.away = False  # type: ignore[attr-defined]
        late = await here.make("late")
        await here.book.revoke(late.key_id)
        # Of several the last may come alone: it names a key that was made since.
        told = next((version, revoked) for version, revoked in here.told if late.key_id in revoked)
        await there.book.hear(*told)
        assert not there.counts(late) and there.counts(other)
        with pytest.raises(SiltlogError, match="another node knows version 99"):
            await there.book.hear(99, ())

    run(body)


def test_what_one_node_changes_holds_on_another(world: Callable[[str], Node]) -> None:
    async def body() -> None:
        here, there = world("here"), world("there")
        there.book.start()
        versions = []
        there.book.access.when_changed(lambda: versions.append(there.book.document.number))
        key = await here.make("ana")
        assert here.counts(key)
        await until(lambda: there.counts(key))
        identity = there.keys.known(key.text())
        assert identity is not None
        grant = Grant(there.book.access, identity)
        grant.require("admin", "cluster")
        assert await here.book.revoke(key.key_id)
        assert not here.counts(key)
        await until(lambda: not there.counts(key))
        with pytest.raises(Unauthenticated):
            grant.require("admin", "cluster")
        assert versions == [1, 2]
        assert not here.held_file.exists() or here.held_file.read_bytes() == b"[]"
        there.book.stop()

    run(body)


@pytest.mark.rule("A30")
def test_a_revocation_holds_here_while_the_store_is_away_also_after_a_restart(world: Callable[[str], Node]) -> None:
    async def body() -> None:
        here = world("here")
        key, other = await here.make("ana"), await here.make("bob")
        store: Any = here.store  # type: ignore[attr-defined]
        store.away = True
        with pytest.raises(SiltlogError) as told:
            await here.book.change(with_part("bindings", "b", Binding("key:ana", "viewer"), 0))
        assert (told.value.error_code, told.value.status) == ("access_unavailable", 503)
        assert not await here.book.revoke(key.key_id)
        assert [here.counts(key), here.counts(other)] == [False, True]
        assert any("1 revoked keys" in warning for warning in here.book.warnings())
        store.away = False
        again = world("here")
        assert [again.counts(key), again.counts(other)] == [False, True]
        assert key.key_id in world("there").book.document.keys, "it is not written yet"
        again.book.start()
        await until(lambda: key.key_id not in world("there").book.document.keys)
        await until(lambda: again.held_file.read_bytes() == b"[]")
        assert again.book.warnings() == []
        again.book.stop()

    run(body)


@pytest.mark.rule("A18", "A30")
def test_a_revocation_holds_here_where_neither_the_disk_nor_the_store_keeps_it(
    world: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def body() -> None:
        here = world("here")
        key, other = await here.make("ana"), await here.make("bob")
        store: Any = here.store  # type: ignore[attr-defined]
        store.away = True
        with monkeypatch.context() as full:
            full.setattr(held_module, "replace_private", no_room)
            full.setattr(documents_module, "replace_private", no_room)
            with pytest.raises(SiltlogError) as told:
                await here.book.revoke(key.key_id)
            assert (told.value.error_code, told.value.status) == ("access_unavailable", 503)
            assert [here.counts(key), here.counts(other)] == [False, True]
            assert any("cannot be kept" in warning for warning in here.book.warnings())
            # The store has it: nothing is lost with the process.
            store.away = False
            assert await here.book.revoke(key.key_id)
            assert key.key_id not in world("there").book.document.keys
        here.book.start()
        await until(lambda: here.book.warnings() == [])
        here.book.stop()

    run(body)


@pytest.mark.rule("A30")
def test_what_is_being_kept_is_nothing_to_warn_of(
    world: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[list[str]] = []

    async def body() -> None:
        here = world("here")
        key = await here.make("ana")

        def replace(path: Path, data: bytes) -> None:
            replace_private(path, data)
            warnings.append(here.book.warnings())

        monkeypatch.setattr(held_module, "replace_private", replace)
        assert await here.book.revoke(key.key_id)

    run(body)
    assert not [each for told in warnings for each in told if "cannot be kept" in each]
    assert warnings


@pytest.mark.rule("A31")
def test_without_a_look_for_long_nobody_is_let_in_but_the_machines_own_user(world: Callable[[str], Node]) -> None:
    async def body() -> None:
        here = world("here")
        key = await here.make("ana")
        identity = here.keys.known(key.text())
        assert identity is not None
        grant, local = Grant(here.book.access, identity), Grant(here.book.access, Identity(Subject(LOCAL)))
        store: Any = here.store  # type: ignore[attr-defined]
        store.away = True
        here.book.start()
        here.clock.seconds += AWAY_SECONDS
        assert any("has not answered" in warning for warning in here.book.warnings())
        assert here.book.stale() is None
        grant.require("admin", "cluster")
        before = here.book.access.version
        here.clock.seconds += STALE_MS / 1000
        await until(lambda: here.book.access.version > before)
        with pytest.raises(SiltlogError) as told:
            grant.require("admin", "cluster")
        assert (told.value.error_code, told.value.status) == ("access_unavailable", 503)
        local.require("admin", "cluster")
        store.away = False
        await until(lambda: here.book.stale() is None)
        await until(lambda: here.book.access.version > before + 1)
        grant.require("admin", "cluster")
        assert here.book.warnings() == []
        here.book.stop()

    run(body)


def test_two_changes_at_once_both_count(world: Callable[[str], Node]) -> None:
    async def body() -> None:
        here, there = world("here"), world("there")
        made = await asyncio.gather(*(node.make(f"k{n}") for n in range(5) for node in (here,)), there.make("other"))
        assert len(world("third").book.document.keys) == len(made) == 6

    run(body)


def test_a_revocation_that_was_written_meanwhile_makes_no_version(world: Callable[[str], Node]) -> None:
    async def body() -> None:
        here = world("here")
        key = await here.make("ana")
        here.book._held.hold([key.key_id])
        await asyncio.gather(*(here.book._write_held() for _ in range(3)))
        assert here.book.document.number == 2
        assert here.book._held.ids == frozenset()

    run(body)


def test_a_secret_is_made_once_and_told_where_the_root_is_elsewhere(tmp_path: Path) -> None:
    told = KeptLog()
    made = open_secret(tmp_path, "", is_remote=True, logger=told)
    again = open_secret(tmp_path, "", is_remote=True, logger=told)
    assert made.key("x") == again.key("x")
    assert len(told.said) == 1
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert open_secret(tmp_path / "else", str(tmp_path / "secret"), is_remote=True, logger=told).key("x") == made.key(
        "x"
    )
    with pytest.raises(ConfigError, match="absent"):
        open_secret(tmp_path, str(tmp_path / "absent"), is_remote=False, logger=told)


def test_a_key_that_another_node_revokes_counts_no_more_and_its_streams_end(tmp_path: Path) -> None:
    async def revoke(server: Secured, key_id: str) -> None:
        data_dir, clock, log = server.server.data_dir, SystemClock(), logger("critical", "json")
        secret = open_secret(data_dir, "", is_remote=False, logger=log)
        store = open_store(server.server.root, s3_endpoint="", s3_region="")
        documents = AccessDocuments(store, cluster_id(store), secret.key(PURPOSE_ACCESS), tmp_path / "seen", clock, log)
        documents.open()
        keys = ApiKeys(secret.key(PURPOSE_KEYS), clock)
        held = HeldRevocations(tmp_path / "held")
        other = AccessBook(documents, held, keys, (keys,), clock=clock, logger=log, stale_ms=STALE_MS)
        assert await other.revoke(key_id)

    with secured_server() as server:
        assert server.admin.call("PUT", "/v1/topics/orders").status == 201
        key_id, reader = server.key("reader", ("consumer", ""))
        with reader.connect() as stream:
            head = "GET /v1/topics/orders/tail HTTP/1.1", "Host: localhost", f"Authorization: Bearer {reader.token}"
            stream.sendall("\r\n".join((*head, "", "")).encode())
            assert stream.recv(65_536).startswith(b"HTTP/1.1 200")
            asyncio.run(revoke(server, key_id))
            revoked_s = time.monotonic()
            told = b""
            while part := stream.recv(65_536):
                told += part
                if b"event: problem" in told:
                    break
            assert b"unauthenticated" in told
            assert time.monotonic() - revoked_s < STALE_MS / 1000 / 2, "three seconds where the machine has time"
        refused = reader.get("/v1/cluster")
        assert (refused.status, refused.json["reason"]) == (401, "unknown")
