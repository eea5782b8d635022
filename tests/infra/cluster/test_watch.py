"""A node is taken for gone, and a watcher is kept from burying the living."""

from collections.abc import Mapping

import pytest

from siltlog.infra.cluster.beat import Beat
from siltlog.infra.cluster.watch import Watch

JOURNALS = {f"n{number}": f"j{number}" for number in range(6)}


def beat(node: str, number: int, rounds: int = 0, journal: str = "") -> Beat:
    journal = journal or JOURNALS[node]
    return Beat(beat=number, node=node, data_dir="d", place="p", journal=journal, url="u", rounds=rounds)


def looks(watch: Watch, times: Mapping[float, Mapping[str, Beat]], own: float | None = None) -> None:
    for at, beats in times.items():
        watch.looked(at, at + 0.1, JOURNALS, beats, at if own is None else own)


STILL = {node: beat(node, 7) for node in JOURNALS}


@pytest.mark.rule("CM4")
def test_a_beat_that_stands_still_for_a_lease_is_that_of_a_node_that_is_gone() -> None:
    watch = Watch(5_000, 1_500)
    moving = {second: {**STILL, "n1": beat("n1", 7 + second)} for second in range(6)}
    looks(watch, {at: beats for at, beats in moving.items() if at < 5})
    assert watch.lost(6) == []
    looks(watch, {5.2: moving[5]})
    assert watch.lost(6) == ["n0", "n2"]
    assert watch.beat_stood_s("n1") == pytest.approx(0.0)


@pytest.mark.rule("CM14")
def test_less_of_a_silence_will_do_where_nobody_listens() -> None:
    watch = Watch(5_000, 1_500)
    looks(watch, dict.fromkeys((0, 1), STILL))
    assert watch.suspects() == []
    looks(watch, {2.0: STILL})
    assert watch.suspects() == sorted(STILL)
    assert watch.lost(6, ["n3"]) == [], "its beat may come yet"
    assert watch.ends_at(2.1, ["n3"]) == pytest.approx(2.35)
    looks(watch, {2.4: STILL})
    assert watch.lost(6, ["n3"]) == ["n3"]
    assert watch.lost(6) == []


@pytest.mark.rule("CM4")
def test_a_third_is_lost_in_a_lease_at_most_or_one() -> None:
    watch = Watch(5_000, 1_500)
    looks(watch, dict.fromkeys(range(7), STILL))
    assert len(watch.lost(6)) == 2
    assert len(watch.lost(2)) == 1
    watch.buried(2)
    assert watch.lost(6) == []
    looks(watch, dict.fromkeys(range(7, 12), STILL))
    assert len(watch.lost(6)) == 2


@pytest.mark.rule("CM4")
@pytest.mark.parametrize(
    "interruption", ["a look that failed", "a pause", "a look that took long", "no beat of its own"]
)
def test_what_interrupts_a_watcher_is_no_time_in_which_it_watched(interruption: str) -> None:
    watch = Watch(5_000, 1_500)
    looks(watch, dict.fromkeys(range(5), STILL))
    if interruption == "a look that failed":
        watch.failed()
    elif interruption == "a look that took long":
        watch.looked(4.5, 8.0, JOURNALS, STILL, 4.5)
    elif interruption == "no beat of its own":
        looks(watch, {4.6: STILL}, own=1.0)
    looks(watch, {9 + second * 0.5: STILL for second in range(8)})
    assert watch.lost(6) == []
    looks(watch, {14 + second * 0.5: STILL for second in range(2)})
    assert watch.lost(6) == ["n0", "n1"]


def test_an_old_beat_that_comes_late_is_no_sign_of_life() -> None:
    watch = Watch(5_000, 1_500)
    looks(watch, dict.fromkeys(range(3), STILL))
    looks(watch, {3: {**STILL, "n0": beat("n0", 5), "n1": beat("n1", 9, journal="another")}})
    looks(watch, dict.fromkeys(range(4, 7), STILL))
    assert watch.lost(6) == ["n0", "n1"]


@pytest.mark.rule("CM3")
def test_a_controller_that_beats_and_plans_nothing_stands_still() -> None:
    watch = Watch(5_000, 1_500)
    looks(watch, {second: {"n0": beat("n0", second, rounds=3)} for second in range(7)})
    assert watch.beat_stood_s("n0") == 0.0
    assert watch.rounds_stood_s("n0") >= 5
    looks(watch, {7: {"n0": beat("n0", 7, rounds=4)}})
    assert watch.rounds_stood_s("n0") == 0.0


def test_a_lease_is_looked_at_when_it_ends_and_not_again_for_nothing() -> None:
    watch = Watch(5_000, 1_500)
    assert watch.ends_at(0.0) == float("inf")
    looks(watch, {0: {"n0": beat("n0", 1)}, 1: {"n0": beat("n0", 2, rounds=4)}})
    # The beats of the others, of which there are none, were first missed at 0.1.
    assert watch.ends_at(1.1) == pytest.approx(5.1)
    assert watch.ends_at(5.2) == pytest.approx(6.1)
    assert watch.ends_at(6.2) == float("inf")
    assert watch.ends_at(6.2, wait_s=0.3) == pytest.approx(6.4)
