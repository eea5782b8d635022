"""What nodes say of others that are set otherwise than they are."""

import random
from pathlib import Path

import pytest
from access_rig import As, make_first_key
from chaos import seeds
from cluster_rig import cluster
from mutants import Mutant, Play, hold, instead, nothing, noticed, plays

from siltlog.infra.telemetry import logger
from siltlog.server.cluster.agreement import Agreement, Settings


def who_is_set_otherwise_is_named(seed: int, _: Path) -> None:
    """CR17"""
    chance = random.Random(seed)
    ours, theirs = chance.sample(["on", "off"], 2)
    members = ["n2", "n3", "n4"]
    agreement = Agreement(Settings(ours), lambda: members, logger("critical", "json"))
    assert agreement.warnings() == []
    said = {"n2": b'{"auth":"%s"}' % theirs.encode(), "n3": b'{"auth":"%s","later":1}' % ours.encode(), "n4": b"{}"}
    for node in chance.sample(members, len(members)):
        agreement.hear(node, said[node])
    warnings = agreement.warnings()
    assert len(warnings) == 1, "one serves everybody, and nobody is told"
    assert warnings[0].startswith(f"cluster: SILT_AUTH is {theirs} on node n2 and {ours} here")
    agreement.hear("n2", said["n3"])
    assert agreement.warnings() == []
    agreement.hear("n3", said["n2"])
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
