"""Nodes that share a root, many at once: what views promise holds, and the tests notice where it does not."""

from collections.abc import Callable
from typing import Any, get_args

import members_scenarios as scenarios
import pytest
from chaos import seeds
from msgspec.structs import replace

from siltlog.infra.cluster import member, steps, watch
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import WishKind
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.planning import controller, wishes
from siltlog.infra.cluster.planning.draft import Draft
from siltlog.infra.cluster.survey import Survey
from siltlog.infra.cluster.watch import Watch

Scenario = Callable[[int], None]


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(12))
def test_every_view_keeps_its_promises_whatever_happens(seed: int) -> None:
    scenarios.storms(seed)


@pytest.mark.rule(
    "CM1", "CM2", "CM3", "CM4", "CM5", "CM6", "CM7", "CM8", "CM11", "CM14", "CM15", "CM16", "CM17", "CM18", "CG9"
)
@pytest.mark.chaos
@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_comes_of_it(scenario: Scenario) -> None:
    for seed in seeds(2):
        scenario(seed)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _all_have(*_: Any) -> set[str]:
    return set()


def _only_next(self: Member, *, listing: bool) -> Any:
    found = yield from steps.next_view(self.view.number)
    if found is not None:
        self._see(found)


def _surveys_first(self: Member) -> Any:
    yield from self.survey()
    yield from _look(self)


def _settles_early(draft: Draft, name: str) -> None:
    topic = draft.topics[name]
    draft.topics[name] = replace(topic, chain=topic.chain[-1:])


def _gives_up_the_term(draft: Draft, name: str) -> None:
    draft.topics[name] = replace(draft.topics[name], to=None)


def _gives_a_term_again(draft: Draft, node: str, floor: int) -> Any:
    draft._term -= 1
    return _granted(draft, node, floor)


def _keeps_no_floor(draft: Draft, node: str, floor: int) -> Any:
    return _granted(draft, node, 0)


_granted = Draft._granted
_refusing = Member._refusing
_look = Member.look
_strangers = Addresses.strangers
_adopt = controller._adopt

MUTANTS: dict[str, tuple[object, str, Any, Scenario]] = {
    "CM1 a writer lists nothing": (
        steps,
        "numbers",
        lambda store: [],
        scenarios.a_sleeper_writes_a_number_that_was_cleaned,
    ),
    "CM2 nobody looks who is there": (
        Watch,
        "beat_stood_s",
        lambda self, node: 99.0,
        scenarios.a_name_that_is_up_is_refused,
    ),
    "CM2 a copy is taken for the original": (
        Watch,
        "beat_stood_s",
        lambda self, node: 99.0,
        scenarios.a_copy_of_a_data_directory_is_refused,
    ),
    "CM18 nobody looks whose secret it is": (
        Addresses,
        "strangers",
        lambda self, node, view: set(),
        scenarios.one_with_another_secret_is_refused_while_the_controller_lives,
    ),
    "CM18 only a controller is asked whose secret it is": (
        Addresses,
        "strangers",
        lambda self, node, view: _strangers(self, node, view) & {view.controller},
        scenarios.a_controller_that_comes_again_with_another_secret_is_refused,
    ),
    "CM18 who has come with the new secret is a stranger": (
        Addresses,
        "says",
        lambda self, beat: False,
        scenarios.all_are_given_another_secret_while_none_is_up,
    ),
    "CM18 a secret that the cluster had counts for nothing": (
        Addresses,
        "counts",
        lambda self, node, entry: False,
        scenarios.one_with_another_secret_is_refused_while_the_controller_lives,
    ),
    "CM3 nobody rules after the controller": (
        Watch,
        "overdue_s",
        lambda self, node, refused: -1.0,
        scenarios.a_controller_that_dies_is_replaced,
    ),
    "CM3 beats count as rounds": (
        Watch,
        "rounds_stood_s",
        Watch.beat_stood_s,
        scenarios.a_planner_that_raises_is_replaced,
    ),
    "CM4 a pause is not noticed": (watch, "PAUSES_A_LEASE", 1e-9, scenarios.all_sleep_and_one_wakes_first),
    "CM4 all may be lost at once": (watch, "SHARE_MAX", 1, scenarios.most_die_at_once),
    "CM15 who hears nothing beats on": (
        Member,
        "_is_deaf",
        lambda self, now: False,
        scenarios.one_that_hears_nothing_of_the_store_is_lost,
    ),
    "CM14 a refusal alone is enough": (
        Watch,
        "outlived_s",
        lambda self, node, refused: 0.0 if refused else self.beat_stood_s(node) - self._lease_s,
        scenarios.one_that_refuses_connections_and_beats_stays,
    ),
    "CM14 refusals are not heeded": (
        watch,
        "REFUSED_HEARTBEATS",
        99,
        scenarios.one_that_refuses_connections_is_lost_sooner,
    ),
    "CM14 nobody asks for the controller": (
        Member,
        "_refusing",
        lambda self: set() if not self.controls else _refusing(self),
        scenarios.a_controller_that_refuses_connections_is_replaced_sooner,
    ),
    "CM16 tables are looked at between two looks at beats": (
        Member,
        "look",
        _surveys_first,
        scenarios.a_node_dies_while_its_controller_looks_at_tables,
    ),
    "CM16 what was found counts whatever came since": (
        Survey,
        "saw",
        _nothing,
        scenarios.a_topic_is_deleted_while_its_table_is_looked_at,
    ),
    "CM17 what was found is forgotten before there is a view": (
        Member,
        "_obeys",
        property(lambda self: not self.controls),
        scenarios.the_first_view_names_all_topics,
    ),
    "CM17 topics wait for a node that is up": (
        Draft,
        "starting",
        lambda self: [],
        scenarios.the_first_view_names_all_topics,
    ),
    "CM17 terms begin with the first view": (
        Member,
        "_begun",
        lambda self, view: view,
        scenarios.the_first_view_names_all_topics,
    ),
    "CM5 the lost journal goes on": (
        Member,
        "reopen",
        _nothing,
        scenarios.who_was_lost_comes_back_with_another_journal,
    ),
    "CM5 who is unready stays": (
        controller,
        "unready",
        lambda *_: set(),
        scenarios.a_node_that_cannot_acknowledge_is_drained,
    ),
    "CM5 a journal may stand still": (
        controller,
        "STALLED_MS",
        1 << 60,
        scenarios.a_node_whose_journal_stands_still_is_drained,
    ),
    "CM5 one accuser is enough": (controller, "ACCUSERS_MIN", 1, scenarios.a_node_that_most_cannot_reach_is_drained),
    "CM5 who is reached by nobody stays for half a minute": (
        member,
        "LEASES_CUT_OFF",
        6,
        scenarios.a_node_that_nobody_reaches_is_drained_sooner,
    ),
    "CM5 who is reached by some goes as soon": (
        member,
        "cut_off",
        controller.unready,
        scenarios.a_node_that_nobody_reaches_is_drained_sooner,
    ),
    "CG9 it waits for its Redis": (controller, "_kept", _nothing, scenarios.one_without_redis_keeps_no_offsets),
    "CG9 a moment is enough": (member, "LEASES_CUT_OFF", 1e-9, scenarios.one_without_redis_keeps_no_offsets),
    "CG9 balance goes by counts alone": (
        controller,
        "redisless",
        _all_have,
        scenarios.one_without_redis_keeps_no_offsets,
    ),
    "CM5 who lets nothing go keeps it": (
        controller,
        "_stuck",
        _nothing,
        scenarios.one_that_lets_nothing_go_is_taken_for_lost,
    ),
    "CM5 what came to nothing is not tried again": (
        controller,
        "_under_way",
        lambda draft: 0,
        scenarios.a_move_that_came_to_nothing_is_made_again,
    ),
    "CM5 who claims nothing keeps it": (
        member,
        "LEASES_UNCLAIMED",
        1e9,
        scenarios.a_term_that_nobody_claims_is_given_to_another,
    ),
    "CM5 a topic is its name": (
        controller,
        "_adopt",
        lambda draft, name, topic_id: None if name in draft.topics else _adopt(draft, name, topic_id),
        scenarios.a_topic_is_made_anew_while_its_owner_is_gone,
    ),
    "CM5 what was claimed and not taken stays where it is": (
        controller,
        "_holder",
        _nothing,
        scenarios.what_was_claimed_and_not_taken_goes_back,
    ),
    "CM5 an owner that let go of it stays": (
        controller,
        "_superseded",
        lambda *_: False,
        scenarios.what_a_target_claimed_and_did_not_take_goes_back,
    ),
    "CM6 nobody lists": (Member, "_find", _only_next, scenarios.who_sleeps_through_many_views_finds_the_newest),
    "CM7 what waits stays where it waits": (
        Draft,
        "waiting",
        _nothing,
        scenarios.what_only_its_data_directory_has_goes_back_to_it,
    ),
    "CM11 the highest offer counts": (
        member,
        "offers",
        lambda view, beats: max((beat.formats for beat in beats.values()), default=0),
        scenarios.releases_go_up_one_node_after_the_other,
    ),
    "CM11 a format rises at once": (member, "OFFERED_SECONDS", 1.0, scenarios.releases_go_up_one_node_after_the_other),
    "CM8 a term leaves with its target": (
        Draft,
        "keep",
        _gives_up_the_term,
        scenarios.a_target_dies_and_its_term_stays,
    ),
    "CM8 a chain is cut at once": (Draft, "give", None, scenarios.storms),
    "CM8 a term is given again": (Draft, "_granted", _gives_a_term_again, scenarios.storms),
    "CM8 no term is raised": (
        Draft,
        "_granted",
        _keeps_no_floor,
        scenarios.a_term_below_that_of_the_table_is_raised,
    ),
}


def _gives_and_cuts(draft: Draft, name: str, node: str, floor: int = 0) -> None:
    _give(draft, name, node, floor)
    _settles_early(draft, name)


_give = Draft.give


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutant, scenario = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant or _gives_and_cuts)
    if owner is controller and attribute == "unready":
        monkeypatch.setattr(member, "unready", mutant)
    with pytest.raises(AssertionError):
        for seed in seeds(5):
            scenario(seed)


def test_every_wish_has_its_answer() -> None:
    assert set(wishes._OF_KIND) == set(get_args(WishKind))
