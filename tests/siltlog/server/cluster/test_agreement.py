"""What nodes say of others that are set otherwise than they are."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from access_rig import As, make_first_key
from chaos import seeds
from cluster_rig import cluster
from msgspec.structs import replace
from mutants import Mutant, Play, hold, instead, nothing, noticed, plays

from siltlog.infra.clock import SystemClock
from siltlog.infra.telemetry import logger
from siltlog.server.cluster.agreement import Agreement


class StillClock(SystemClock):
    now = 1_800_000_000_000_000

    def now_us(self) -> int:
        return self.now


def who_is_set_otherwise_is_named(seed: int, _: Path) -> None:
    """CR17"""
    chance = random.Random(seed)
    ours, theirs = chance.sample(["on", "off"], 2)
    members = ["n2", "n3", "n4"]
    clock = StillClock()
    agreement = Agreement(ours, clock, lambda: members, logger("critical", "json"))
    assert agreement.warnings() == []

    def hear(node: str, said: Any, took_us: int = 0) -> None:
        agreement.hear(node, msgspec.json.encode(said), clock.now - took_us)

    other = Agreement(theirs, clock, list, logger("critical", "json")).says()
    same, apart_us = agreement.says(), chance.choice((-1, 1)) * 31_000_000
    said = {"n2": other, "n3": {"auth": ours, "later": 1}, "n4": {}}
    for node in chance.sample(members, len(members)):
        hear(node, said[node])
    warnings = agreement.warnings()
    assert len(warnings) == 1, "one serves everybody, and nobody is told"
    assert warnings[0].startswith(f"cluster: SILT_AUTH is {theirs} on node n2 and {ours} here")
    hear("n2", same)
    assert agreement.warnings() == []
    hear("n3", replace(same, now_us=clock.now + apart_us))
    (warning,) = agreement.warnings()
    assert f"the clock of node n3 is 31 s {'ahead of' if apart_us > 0 else 'behind'}" in warning
    hear("n3", replace(same, now_us=clock.now - 31_000_000), took_us=2_000_000)
    assert agreement.warnings() == [], "it may have been asked long before it answered"
    hear("n3", replace(other, now_us=clock.now + 90_000_000))
    assert len(agreement.warnings()) == 2
    members.remove("n3")
    assert agreement.warnings() == []


MUTANTS: dict[str, Mutant] = {
    "CR17 nobody hears of it": Mutant(who_is_set_otherwise_is_named, instead(Agreement, "hear", nothing)),
}


@pytest.mark.rule("CR17")
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_nodes_say_of_each_other_what_differs(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(4), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.rule("CR17")
def test_both_of_two_real_nodes_that_differ_warn(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4 + "\n")
    secret.chmod(0o600)
    root = {"root": (tmp_path / "lake").as_uri(), "data_dir": str(tmp_path / "first"), "auth": "on"}
    token = make_first_key(**root, secret_file=str(secret))
    with cluster(tmp_path, 2, each=lambda name, _: {"auth": "on" if name == "n1" else "off"}) as nodes:
        for name, other, theirs in (("n1", "n2", "off"), ("n2", "n1", "on")):
            caller = As(nodes[name].url, token if name == "n1" else None)
            said = f"cluster: SILT_AUTH is {theirs} on node {other}"
            nodes.until(lambda caller=caller, said=said: said in caller.get("/readyz").body.decode(), "it warns")
            assert "a node of the cluster has another SILT_AUTH" in nodes[name].log()
