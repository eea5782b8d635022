"""Each rule of stores that nodes share is needed: a mutant of each is noticed."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch as patched

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from chaos import seeds
from mutants import Mutant, Play, hold, instead, nothing, noticed, plays
from record_tables import CLOCK, claimed, new_id

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat, encode_beat
from siltlog.infra.cluster.view import ClusterView, TermEntry, TopicEntry, encode_view
from siltlog.infra.errors import ConfigError, Fenced, SiltlogError
from siltlog.infra.store import probe, s3
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.s3 import S3Store
from siltlog.infra.store.store import Put, open_store
from siltlog.infra.table import table as tables
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.journal import codec
from siltlog.pipelines.retention import journals

FATES = ("", "", "conflict", "in trouble, done", "in trouble", "no answer, done", "no answer")


class Bucket:
    """One object, and a server that says by chance something else than what it did."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.content: bytes | None = None
        self.sent = 0
        self.conflicts = 0

    def put_object(self, *, Body: bytes, IfNoneMatch: str, **_: object) -> None:  # noqa: N803
        assert IfNoneMatch == "*"
        self.sent += 1
        fate = self.chance.choice(
            ("", "", "conflict", "in trouble, done", "in trouble", "no answer, done", "no answer")
        )
        if fate == "conflict" or (fate == "" and self.content is not None):
            self.conflicts += fate == "conflict"
            raise self._error(409 if fate == "conflict" else 412)
        if self.content is None and (fate == "" or fate.endswith("done")):
            self.content = Body
        if fate.startswith("in trouble"):
            raise self._error(503)
        if fate.startswith("no answer"):
            raise ReadTimeoutError(endpoint_url="http://s3")

    @staticmethod
    def _error(status: int) -> ClientError:
        code = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 503: "SlowDown"}[status]
        said: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        return ClientError(said, "PutObject")


def what_a_put_is_told_is_so(seed: int, _: Path) -> None:
    """CS1"""
    chance = random.Random(seed)
    for _n in range(20):
        bucket = Bucket(chance)
        store = S3Store.__new__(S3Store)
        store.__dict__ |= {"_once": bucket, "_bucket": "b", "_prefix": "", "_encryption": {}, "root_uri": "s3://b"}
        told: dict[bytes, Put | None] = {}
        for content in (b"a", b"b"):
            bucket.sent = bucket.conflicts = 0
            try:
                told[content] = S3Store.put_if_absent.__wrapped__(store, "x", content)  # type: ignore[attr-defined]
            except SiltlogError:
                told[content] = None
                assert bucket.content != content, "an error was raised for what was written"
            assert bucket.sent == 1 + bucket.conflicts - (told[content] is None), "it was sent once more"
        for content, put in told.items():
            if put is Put.WRITTEN:
                assert bucket.content == content, "written, and another's is there"
            if put is Put.EXISTS:
                assert bucket.content is not None, "it is said to exist, and nothing is there"


def what_exists_is_durable(seed: int, folder: Path) -> None:
    """CS2"""
    chance = random.Random(seed)
    root = folder / "root"
    synced: set[str] = set()
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    with patched.object(os, "fsync", record):
        store = LocalStore(str(root))
        for _n in range(12):
            path = f"{chance.choice('ab')}/{chance.choice('cd')}/{chance.choice('xyz')}"
            file = root / path
            if chance.random() < 0.4 and not file.exists():
                # Somebody else's, who was killed before he synced anything.
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"another's")
            own = not file.exists()
            told = store.put_if_absent(path, b"own")
            assert told is (Put.WRITTEN if own else Put.EXISTS)
            needed = {str(above) for above in file.parents if above.is_relative_to(root)}
            # What is written is synced under a name that it has no more.
            needed |= set() if own else {str(file)}
            assert needed <= synced, f"{needed - synced} may be gone after a power cut"


def a_commit_counts_for_its_owner_alone(seed: int, folder: Path) -> None:
    """CS3"""
    chance = random.Random(seed)
    store = open_store(folder.as_uri())
    table = claimed(store)
    other = TopicTable.open(store, "t", CLOCK)
    handle: Any = table._handle
    commit = handle.commit

    def followed(make: Any) -> None:
        handle.commit = commit
        early = chance.random() < 0.5
        if early:
            other.claim({0: other.refresh().epochs[0] + 1}, new_id())
        commit(make)
        if not early:
            other.claim({0: other.refresh().epochs[0] + 1}, new_id())

    handle.commit = followed
    act = chance.choice(("take", "mark", "take"))
    try:
        if act == "take":
            table.claim({0: 2}, new_id())
        else:
            table.mark({0: 1}, {"x/0": 1}, new_id())
    except Fenced:
        return
    raise AssertionError(f"{act} counts, and another has claimed")


class TwoWin(LocalStore):
    """Looks, and then writes."""

    def put_if_absent(self, path: str, data: bytes) -> Put:
        self.put(path, data)
        return Put.WRITTEN


def a_store_that_lets_two_win_is_not_shared(seed: int, folder: Path) -> None:
    """CS4"""
    kind = random.Random(seed).choice((TwoWin, LocalStore))
    with _no_mounts():
        try:
            probe.check_shared_root(kind(str(folder)), f"start-{seed}", racers=2)
        except ConfigError:
            assert kind is TwoWin, "one that has one winner is refused"
            return
    assert kind is LocalStore, "two win, and nodes share it"


@contextmanager
def _no_mounts() -> Iterator[None]:
    with patched.object(probe, "MOUNTS", Path("/none")):
        yield


def a_root_of_other_machines_is_not_shared(seed: int, folder: Path) -> None:
    """CS5"""
    chance = random.Random(seed)
    places = {"/": "ext4"}
    for at in chance.sample(("/srv", "/srv/lake", "/srv/lake/x", "/mnt", "/srv/la"), 3):
        places[at] = chance.choice(("nfs4", "nfs", "cifs", "smb3", "fuse.s3fs", "xfs", "btrfs"))
    lines = [f"{n} 1 0:{n} / {at} rw shared:{n} - {kind} x rw" for n, (at, kind) in enumerate(places.items())]
    mounts = folder / "mountinfo"
    mounts.write_text("\n".join(lines))
    root = Path(chance.choice(("/srv/lake/x/root", "/srv/lake/root", "/srv/other", "/mnt/y")))
    above = max((at for at in places if root.is_relative_to(at)), key=len)
    elsewhere = places[above] not in ("ext4", "xfs", "btrfs")
    try:
        probe.check_file_system(root, mounts)
    except ConfigError:
        assert elsewhere, f"{places[above]} is this machine's"
        return
    assert not elsewhere, f"nodes share {root} on {places[above]}"


def who_asks_again_soon_is_not_kept(seed: int, _: Path) -> None:
    """CS7"""
    chance = random.Random(seed)
    patience_ms = chance.choice((200, 1_000, 3_000))
    store = open_store("s3://bucket/x", s3_endpoint="http://127.0.0.1:1", patience_ms=patience_ms)
    for client in (store._client, store._once):  # type: ignore[attr-defined]
        config = client.meta.config
        assert config.retries["total_max_attempts"] == 1, "the SDK asks again by itself"
        assert max(config.read_timeout, config.connect_timeout) * 1000 <= patience_ms, "it is waited for longer"


def what_a_journal_is_needed_for_is_kept(seed: int, folder: Path) -> None:
    """CS6"""
    chance = random.Random(seed)
    store = open_store(folder.as_uri())
    table = claimed(store)
    shared = chance.random() < 0.7
    names_it: dict[str, str] = {}
    for number in range(6):
        names_it[f"j{number}"] = chance.choice(("table", "nobody", *(("view", "old view", "beat") if shared else ())))
    named_by = {kind: [journal for journal, by in names_it.items() if by == kind] for kind in names_it.values()}
    if tables_names := named_by.get("table"):
        chain = [(1, f"n/{journal}") for journal in tables_names]
        table.mark(table.snapshot.epochs, {}, new_id(), journals=chain)
    for number, kind in enumerate(("old view", "view"), 41):
        chain_of = tuple(
            TermEntry(term=at + 1, node="n", data_dir="d", journal=journal)
            for at, journal in enumerate(named_by.get(kind, ()))
        )
        topics = {"t": TopicEntry(topic_id="t", chain=chain_of)} if chain_of else {}
        view = ClusterView(number=number, cluster_id="c", controller="n", journal="j", nonce="x", topics=topics)
        if shared:
            store.put(names.view_object(number), encode_view(view))
    for journal in named_by.get("beat", ()):
        beat = Beat(beat=1, node=f"n-{journal}", data_dir="d", place="p", journal=journal, url="u")
        store.put(names.beat_object(beat.node), encode_beat(beat))
    ages = {journal: chance.choice((1, 2, 40 + number)) for number, journal in enumerate(names_it)}
    for journal, days in ages.items():
        for number in range(3):
            path = names.journal_object("n", journal, number)
            # The last is the seal.
            store.put(path, b"x" * (codec.HEADER_BYTES + (number < 2)))
            seconds = NOW_MS / 1000 - days * 86_400
            os.utime(store.path(path), (seconds, seconds))  # type: ignore[attr-defined]
    last = min(ages, key=lambda journal: ages[journal])
    gone = {info.path for info in journals.left_journals(store, store, NOW_MS)}
    for journal, by in names_it.items():
        mine = {path for path in gone if f"/{journal}/" in path}
        old = ages[journal] > 30
        assert not mine or by == "nobody", f"{journal} goes, which a {by} names"
        assert not mine or old, f"{journal} goes, to which something came lately"
        assert names.journal_object("n", journal, 2) not in mine, "a seal goes"
        if not shared and journal == last and sum(ages[journal] == age for age in ages.values()) == 1:
            assert not mine, "the last journal of one server goes"


NOW_MS = CLOCK.now_us() // 1000


class _Nobody(Exception):
    """Nothing raises it."""


def _put(told: Put | None) -> Any:
    """`S3Store.put_if_absent` with another answer to trouble."""
    put = S3Store.put_if_absent.__wrapped__  # type: ignore[attr-defined]

    def mutant(store: S3Store, path: str, data: bytes) -> Put:
        found: Put = put(store, path, data)
        if found is not Put.UNKNOWN:
            return found
        return store.put_if_absent(path, data) if told is None else told

    mutant.__wrapped__ = mutant  # type: ignore[attr-defined]
    return mutant


def _syncs_no_file(self: LocalStore, path: Path, descriptor: int | None = None) -> None:
    if not path.is_file():
        _sync_one(self, path, descriptor)


_sync_one = LocalStore._sync_one


def _needed_without(kind: str) -> Any:
    """`_needed` that does not look at one kind of what names journals."""
    folder = {"view": names.VIEWS_FOLDER, "beat": names.NODES_FOLDER}.get(kind)

    def mutant(patch: Any) -> None:
        if folder is None:
            patch.setattr(journals, "_table_journals", lambda store, topic: [])
        else:
            real = LocalStore.list
            patch.setattr(LocalStore, "list", lambda self, at: [] if at == folder else real(self, at))

    return mutant


def _patience_of_the_rest(patch: Any) -> None:
    real = S3Store.__init__

    def mutant(self: S3Store, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **{**named, "patience_ms": None})

    patch.setattr(S3Store, "__init__", mutant)


MUTANTS: dict[str, Mutant] = {
    "CS1 what nobody knows is said to exist": Mutant(
        what_a_put_is_told_is_so, instead(S3Store, "put_if_absent", _put(Put.EXISTS))
    ),
    "CS1 what nobody knows is said to be written": Mutant(
        what_a_put_is_told_is_so, instead(S3Store, "put_if_absent", _put(Put.WRITTEN))
    ),
    "CS1 it is sent again": Mutant(what_a_put_is_told_is_so, instead(S3Store, "put_if_absent", _put(None))),
    "CS1 trouble is an error": Mutant(what_a_put_is_told_is_so, instead(s3, "HTTPClientError", _Nobody)),
    "CS2 what another put is not synced": Mutant(
        what_exists_is_durable, instead(LocalStore, "_sync_one", _syncs_no_file)
    ),
    "CS2 folders are not synced": Mutant(what_exists_is_durable, instead(LocalStore, "_settle", nothing)),
    "CS3 epochs are not compared again": Mutant(
        a_commit_counts_for_its_owner_alone, instead(tables, "confirmed", lambda topic, snapshot, *_: snapshot)
    ),
    "CS4 nobody looks who won": Mutant(a_store_that_lets_two_win_is_not_shared, instead(probe, "check_race", nothing)),
    "CS5 nobody looks where it is": Mutant(
        a_root_of_other_machines_is_not_shared, instead(probe, "_OF_OTHER_MACHINES", ("none",))
    ),
    "CS5 the first mount counts": Mutant(
        a_root_of_other_machines_is_not_shared,
        instead(probe, "file_system", lambda folder, lines: ("/", lines[0].split(" - ")[1].split(" ")[0])),
    ),
    "CS6 what views name goes": Mutant(what_a_journal_is_needed_for_is_kept, _needed_without("view")),
    "CS6 what beats name goes": Mutant(what_a_journal_is_needed_for_is_kept, _needed_without("beat")),
    "CS6 what tables name goes": Mutant(what_a_journal_is_needed_for_is_kept, _needed_without("table")),
    "CS6 the young go": Mutant(
        what_a_journal_is_needed_for_is_kept, instead(journals.left_journals, "__defaults__", (0,))
    ),
    "CS6 seals go": Mutant(what_a_journal_is_needed_for_is_kept, instead(journals, "HEADER_BYTES", 0)),
    "CS7 the SDK has its patience": Mutant(who_asks_again_soon_is_not_kept, _patience_of_the_rest),
}


@pytest.mark.rule("CS1", "CS2", "CS3", "CS4", "CS5", "CS6", "CS7")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_stores_that_are_shared_keep_their_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(3), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)
