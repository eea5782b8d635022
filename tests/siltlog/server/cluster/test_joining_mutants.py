"""Each rule of a root that comes to be shared, and is shared no more, is needed: a mutant of each is noticed."""

import asyncio
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch as patched

import pytest
from chaos import seeds
from mutants import Mutant, Patch, Play, hold, instead, nothing, noticed, plays
from record_tables import CLOCK, claimed, new_id

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.beat import Beat, Report, Wish
from siltlog.infra.cluster.identity import Identity, Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.planning.controller import Seen, plan
from siltlog.infra.cluster.planning.draft import Draft
from siltlog.infra.cluster.steps import taken
from siltlog.infra.cluster.view import ClusterView, NodeEntry
from siltlog.infra.errors import ConfigError, Refused
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store import cluster_id as ids
from siltlog.infra.store.cluster_id import cluster_id, mark_shared
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.server.cluster import dissolving, joining


def member(name: str, journal_root: str = "") -> Member:
    place: dict[str, str] = {"journal_root": journal_root, "journal_root_id": journal_root}
    identity = Identity("c", name, name, name, f"http://{name}", "", "", **place)
    return Member(identity, Timing(), SystemClock(), Report, lambda: str(uuid.uuid4()))


def come(store: ObjectStore, one: Member) -> None:
    assert taken(store, one.arrive())
    turn(store, one)


def turn(store: ObjectStore, one: Member) -> None:
    taken(store, one.beat())
    taken(store, one.look())


def starts_alone(store: ObjectStore, folder: Path) -> bool:
    """Whether a server whose cluster is off starts on the root."""
    node: Any = SimpleNamespace(settings=ServerSettings(data_dir=folder), store=store)
    try:
        asyncio.run(joining.joined(node, folder, take_over=False, on_fatal=nothing))
    except ConfigError:
        return False
    return True


def starts_as_before(store: ObjectStore) -> bool:
    """Whether a release that knows of no clusters starts on the root: it takes the whole object for an id."""
    try:
        uuid.UUID(store.get(names.CLUSTER_ID_OBJECT).decode())
    except ValueError:
        return False
    return True


class _GoesOn(AssertionError):
    """A node takes over, in a cluster."""


def a_shared_root_is_no_single_servers(seed: int, folder: Path) -> None:
    """CM9"""
    chance = random.Random(seed)
    store = open_store(folder.as_uri())
    cluster_id(store)
    assert starts_alone(store, folder) and starts_as_before(store)
    shared = chance.random() < 0.7
    if shared:
        mark_shared(store, True)
        for number in range(chance.randrange(1, 4)):
            come(store, member(f"n{number}"))
    assert starts_alone(store, folder) != shared, "a server alone is on a root of nodes"
    assert starts_as_before(store) != shared, "a release that knows of no nodes is on their root"
    on: dict[str, Any] = {
        "cluster": "on",
        "root": folder.as_uri(),
        "advertise_url": "http://n:1",
        "redis_url": "redis://r:1",
    }
    node: Any = SimpleNamespace(settings=ServerSettings(data_dir=folder, **on), store=store, journals=store)
    with patched.object(joining, "check_shared_root", side_effect=_GoesOn):
        try:
            asyncio.run(joining.joined(node, folder, take_over=True, on_fatal=nothing))
        except ConfigError:
            return


def a_cluster_ends_once_it_is_over(seed: int, folder: Path) -> None:
    """CM10"""
    chance = random.Random(seed)
    store = open_store(folder.as_uri())
    cluster_id(store)
    mark_shared(store, True)
    nodes = [member(f"n{number}") for number in range(chance.randrange(1, 4))]
    for one in nodes:
        come(store, one)
    for one in nodes:
        turn(store, one)
    slept = nodes[-1]
    stopped = [one for one in nodes if chance.random() < 0.7]
    for one in stopped:
        one.goes("away")
        taken(store, one.beat())
    held = [claimed(store, f"t{number}", 1) for number in range(chance.randrange(3))]
    for table in [*held]:
        if chance.random() < 0.6:
            table.release({0: 1}, new_id())
            held.remove(table)
    over = len(stopped) == len(nodes) and not held
    try:
        dissolving.dissolve(store, CLOCK)
    except Refused:
        assert not over, "all of it is over"
        assert not starts_alone(store, folder)
        return
    assert over, f"{len(nodes) - len(stopped)} nodes run, and {len(held)} topics are not released"
    assert starts_alone(store, folder) and starts_as_before(store)
    slept.goes("on")
    with suppress(ConfigError):
        turn(store, slept)
    assert starts_alone(store, folder), "who slept brings the cluster back"
    if chance.random() < 0.5:
        again = member("n7")
        come(store, again)
        assert not again.view.dissolved and not starts_alone(store, folder), "a node that comes is no cluster"


NAMES = ("orders", "Orders", "ORDERS", "returns", "Returns")


def names_differ_by_more_than_case(seed: int, _: Path) -> None:
    """CM12"""
    chance = random.Random(seed)
    entry = NodeEntry(data_dir="a", place="a", journal="a1", url="http://a")
    view = ClusterView(number=1, cluster_id="c", controller="a", journal="a1", nonce="n", nodes={"a": entry})
    for number in range(12):
        name, found = chance.choice(NAMES), chance.choice(NAMES)
        kind: Any = chance.choice(("adopt", "adopt", "forget"))
        known = view.topics.get(name)
        topic_id = known.topic_id if known and kind == "forget" else f"id {number}"
        wish = Wish(id=f"w{number}", kind=kind, topic=name, topic_id=topic_id)
        beat = Beat(
            beat=number, node="a", data_dir="a", place="a", journal="a1", url="", view=view.number, wishes=(wish,)
        )
        tables = {found: f"id of {found}"} if chance.random() < 0.4 else {}
        view = plan(view, Seen({"a": beat}, tables=tables), "a", "a1", f"m{number}") or view
        alike = [name.lower() for name in view.topics]
        assert len(set(alike)) == len(alike), f"{sorted(view.topics)} are topics at once"


def journals_are_in_one_place(seed: int, folder: Path) -> None:
    """CM13"""
    chance = random.Random(seed)
    store = open_store(folder.as_uri())
    places = [chance.choice(("", "s3://fast", "s3://faster")) for _ in range(4)]
    there: list[str] = []
    for number, place in enumerate(places):
        one = member(f"n{number}", place)
        try:
            come(store, one)
        except ConfigError as error:
            assert place not in there and "SILT_JOURNAL_ROOT" in error.detail
        else:
            there.append(place)
        assert len(set(there)) == 1, f"nodes have their journals in {there}"


def _takes_over(patch: Patch) -> None:
    real = joining.joined
    patch.setattr(joining, "joined", lambda *of, take_over, **rest: real(*of, take_over=False, **rest))


def _sees(otherwise: Callable[[Member, ClusterView], bool]) -> Callable[[Patch], None]:
    """Goes on where `otherwise` holds, whatever it would be refused for."""

    def mutate(patch: Patch) -> None:
        see = Member._see

        def mutant(self: Member, view: ClusterView) -> None:
            try:
                see(self, view)
            except ConfigError:
                if not otherwise(self, view):
                    raise
                self.view = view

        patch.setattr(Member, "_see", mutant)

    return mutate


MUTANTS: dict[str, Mutant] = {
    "CM9 a server alone looks for no views": Mutant(
        a_shared_root_is_no_single_servers, instead(joining, "check_alone", nothing)
    ),
    "CM9 who takes over may": Mutant(a_shared_root_is_no_single_servers, _takes_over),
    "CM9 the id says nothing of nodes": Mutant(a_shared_root_is_no_single_servers, instead(ids, "SHARED_LINE", "")),
    "CM10 nodes may run": Mutant(a_cluster_ends_once_it_is_over, instead(dissolving, "_check_stopped", nothing)),
    "CM10 topics may be held": Mutant(
        a_cluster_ends_once_it_is_over, instead(dissolving, "_check_released", lambda *_: 0)
    ),
    "CM10 who slept goes on": Mutant(a_cluster_ends_once_it_is_over, _sees(lambda one, view: view.dissolved)),
    "CM12 names are compared as they are": Mutant(
        names_differ_by_more_than_case, instead(Draft, "alike", lambda *_: "")
    ),
    "CM13 anywhere will do": Mutant(
        journals_are_in_one_place,
        _sees(lambda one, view: view.journal_root_id != one.identity.journal_root_id),
    ),
}


@pytest.mark.rule("CM9", "CM10", "CM12", "CM13")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_a_shared_root_keeps_its_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(4), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)
