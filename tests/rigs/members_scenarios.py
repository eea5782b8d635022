"""What happens to nodes that share a root, each with what must come of it: run by tests, and by tests of mutants."""

from collections import Counter

from failing_store import Weather
from members_simulation import SECRET, TIMING, MembersWorld, SimulatedNode, Table

from siltlog.infra import names
from siltlog.infra.cluster import steps
from siltlog.infra.cluster.identity import OFFERED_SECONDS
from siltlog.infra.cluster.survey import PERIOD_SECONDS
from siltlog.infra.cluster.view import ClusterView, decode_view, encode_view

SETTLED_SECONDS = 12.0
ROUGH = Weather(lost=0.03, late=0.03, doubled=0.03, slow_down=0.03)


def settled(seed: int, **world: int) -> MembersWorld:
    """A world whose nodes have come up, and own all topics."""
    found = MembersWorld(seed, **world)
    found.run(SETTLED_SECONDS)
    assert found.settled_problems() == []
    return found


def controller(world: MembersWorld) -> SimulatedNode:
    return world.nodes[world.newest().controller]


def other(world: MembersWorld) -> SimulatedNode:
    return next(node for node in world.nodes.values() if node is not controller(world))


def storms(seed: int) -> None:
    """Anything may happen for a while; every view keeps its promises, and all comes to rest."""
    world = MembersWorld(seed, nodes=3 + seed % 3, weather=ROUGH)
    world.chaos(90)
    world.run(200)
    assert world.settled_problems() == []


def a_sleeper_writes_a_number_that_was_cleaned(seed: int) -> None:
    """CM1"""
    world = settled(seed)
    store = world.nodes["n0"].store
    old = world.newest()
    for number in range(old.number + 1, old.number + steps.VIEWS_KEPT + 3):
        assert drive(steps.put_view(replaced(old, number)), store)
        world.views[number] = replaced(old, number)
    assert store.size(names.view_object(old.number + 1)) is None
    assert drive(steps.put_view(replaced(old, old.number + 1, "of a sleeper")), store) is False
    newest = drive(steps.next_view(old.number), store)
    assert newest is not None
    assert newest.number == max(world.views)


def who_sleeps_through_many_views_finds_the_newest(seed: int) -> None:
    """CM6"""
    world = settled(seed)
    sleeper = other(world)
    sleeper.pause(4)
    old, store = world.newest(), world.nodes[controller(world).name].store
    for number in range(old.number + 1, old.number + steps.VIEWS_KEPT + 3):
        assert drive(steps.put_view(replaced(old, number)), store)
        world.views[number] = replaced(old, number)
    world.run(3 * TIMING.lease_s)
    assert sleeper.member is not None
    assert sleeper.member.view.number >= old.number + steps.VIEWS_KEPT


def a_start_on_the_same_data_directory_is_listed_at_once(seed: int) -> None:
    """CM2"""
    world = settled(seed)
    node = other(world)
    before = world.newest().nodes[node.name].journal
    node.kill()
    world.run(0.5)
    node.start()
    world.run(3.9)
    entry = world.newest().nodes[node.name]
    assert entry.journal != before, "the next start was not listed"
    assert entry.state == "up"
    terms = [term for topic in world.newest().topics.values() for term in topic.terms]
    assert all(term.lost for term in terms if term.journal == before)


def a_name_that_is_up_is_refused(seed: int) -> None:
    """CM2"""
    world = settled(seed)
    second = SimulatedNode(world, other(world).name, "another data directory")
    second.start()
    world.run(10)
    assert "with another data directory" in second.refused, "two data directories are one node"
    assert world.buried_alive() == []


def a_copy_of_a_data_directory_is_refused(seed: int) -> None:
    """CM2"""
    world = settled(seed)
    for name in (other(world).name, "n9"):
        copy = SimulatedNode(world, name, other(world).data_dir, "another machine")
        copy.start()
        world.run(10)
        assert "is a copy of that of node" in copy.refused, "one data directory is two nodes"
    assert world.buried_alive() == []


def one_with_another_secret_is_refused_while_the_controller_lives(seed: int) -> None:
    """CM18"""
    world = settled(seed)
    former, changed = list(world.nodes.values()), other(world)
    stranger = world.nodes["n9"] = world.new_node("n9", "data of n9")
    for each, secret in ((stranger, b"o" * 32), (stranger, b""), (changed, b"o" * 32)):
        each.kill()
        each.secret = secret
        each.start()
        world.run(10)
        assert "does not have the secret of node" in each.refused, "nobody could call it"
        each.kill()
    changed.secret = SECRET
    changed.start()
    world.run(10)
    assert changed.refused == ""
    for each in former:
        each.kill()
    changed.secret = b"o" * 32
    changed.start()
    world.run(30)
    assert changed.refused == "", "all may be given another secret while none is up"
    for each in former:
        if each is not changed:
            each.start()
    world.run(30)
    assert all(each.refused == "" for each in former), "those that have the cluster's secret wait for one that has not"
    assert len(dict(world.newest().members())) == len(former)


def a_controller_that_comes_again_with_another_secret_is_refused(seed: int) -> None:
    """CM18"""
    world = settled(seed)
    changed = world.nodes[controller(world).name]
    changed.kill()
    changed.secret = b"o" * 32
    changed.start()
    world.run(10)
    assert "does not have the secret of node" in changed.refused, "nobody had taken its place yet, so nobody was asked"
    assert world.settled_problems() == []


def all_are_given_another_secret_while_none_is_up(seed: int) -> None:
    """CM18"""
    world = settled(seed)
    nodes = list(world.nodes.values())
    for each in nodes:
        each.kill()
    world.chance.shuffle(nodes)
    for each in nodes:
        each.secret = b"o" * 32
        each.start()
        world.run(world.chance.uniform(0, 2 * TIMING.lease_s))
    world.run(30)
    assert [each.refused for each in nodes if each.refused] == [], "those that have the new secret refuse each other"
    assert len(dict(world.newest().members())) == len(nodes)


def a_data_directory_comes_up_on_another_machine(seed: int) -> None:
    """CM2"""
    world = settled(seed)
    node = other(world)
    node.kill()
    node.place = "another machine"
    node.start()
    world.run(2)
    assert not world.newest().listed(node.name, f"{node.name}/2/0"), "nobody waited until it was lost"
    world.run(18)
    assert not node.refused
    assert world.newest().listed(node.name, f"{node.name}/2/0")
    assert world.settled_problems() == []


def all_machines_are_started_anew(seed: int) -> None:
    """CM2"""
    world = settled(seed)
    for node in world.nodes.values():
        node.kill()
        node.place = f"{node.place}, started again"
    for node in world.nodes.values():
        node.start()
    world.run(60)
    assert [node.refused for node in world.nodes.values() if node.refused] == []
    assert world.settled_problems() == []


def a_controller_that_dies_is_replaced(seed: int) -> None:
    """CM3"""
    world = settled(seed)
    controller(world).kill()
    world.run(10)
    assert world.settled_problems() == []


def a_planner_that_raises_is_replaced(seed: int) -> None:
    """CM3"""
    world = settled(seed)
    broken = controller(world)
    broken.breaks = True
    assert broken.member is not None
    world.tables["later"] = Table()
    world.run(80)
    assert "later" in world.newest().topics, "nobody plans"
    assert controller(world) is not broken
    assert world.buried_alive() == []


def all_sleep_and_one_wakes_first(seed: int) -> None:
    """CM4"""
    world = settled(seed, nodes=6)
    for node in world.nodes.values():
        node.pause(60 + world.chance.uniform(0, 3))
    world.run(90)
    assert world.buried_alive() == [], "a watcher that slept buries the living"


def the_store_is_away_for_a_minute(seed: int) -> None:
    """CM4"""
    world = settled(seed, nodes=6)
    world.objects.slow_down(60)
    world.run(90)
    assert world.buried_alive() == [], "who could not beat is buried"


def most_die_at_once(seed: int) -> None:
    """CM4"""
    world = settled(seed, nodes=6)
    for name in ("n1", "n3", "n4", "n5"):
        world.nodes[name].kill()
    world.run(40)
    away = sorted(entry.since_us / 1e6 for entry in world.newest().nodes.values() if entry.state == "away")
    assert len(away) == 4
    assert away[2] - away[0] > TIMING.lease_s * 0.8, "more than a third was lost within a lease"


def one_that_hears_nothing_of_the_store_is_lost(seed: int) -> None:
    """CM15"""
    world = settled(seed)
    node = other(world)
    world.objects.mute(node.name)
    world.run(2.5 * TIMING.lease_s)
    assert world.newest().nodes[node.name].state == "away", "it beats on, and hears of nothing"
    world.objects.mend(node.name)
    world.run(20)
    assert world.newest().nodes[node.name].state == "up", "it does not come back"


def who_is_answered_late_beats_on(seed: int) -> None:
    """CM15"""
    world = settled(seed)
    for node in world.nodes.values():
        node.slow = True
    world.run(60)
    assert world.buried_alive() == [], "a store that is slow buries the living"


def one_that_refuses_connections_is_lost_sooner(seed: int) -> None:
    """CM14"""
    world = settled(seed)
    node = other(world)
    node.kill()
    world.run(4.2)
    assert world.newest().nodes[node.name].state == "away", "a lease was waited for"


def a_controller_that_refuses_connections_is_replaced_sooner(seed: int) -> None:
    """CM14"""
    world = settled(seed)
    dead = controller(world)
    dead.kill()
    world.run(4.0)
    assert controller(world) is not dead, "a lease was waited for"


def one_that_refuses_connections_and_beats_stays(seed: int) -> None:
    """CM14"""
    world = settled(seed, nodes=4)
    for node in world.nodes.values():
        node.shut = True
    world.run(60)
    assert world.buried_alive() == [], "a refusal alone buries the living"


def who_was_lost_comes_back_with_another_journal(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    node.pause(15)
    world.run(13)
    lost = world.newest().nodes[node.name]
    assert lost.state == "away"
    world.run(20)
    entry = world.newest().nodes[node.name]
    assert entry.state == "up", "it does not come back"
    assert entry.journal != lost.journal


def a_beat_of_a_lost_journal_comes_late(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    path = names.beat_object(node.name)
    late, lost = world.objects.objects[path], world.newest().nodes[node.name].journal
    node.pause(15)
    world.run(33)
    assert world.newest().nodes[node.name].journal != lost
    node.kill()
    world.run(13)
    assert world.newest().nodes[node.name].state == "away"
    world.objects.objects[path] = late
    world.run(5)
    assert world.newest().nodes[node.name].journal != lost, "a journal that was lost is a member's again"


def a_node_that_cannot_acknowledge_is_drained(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    node.ready = False
    world.run(25)
    assert world.newest().nodes[node.name].state == "up"
    world.run(20)
    assert world.newest().nodes[node.name].state == "draining", "it keeps its topics"
    assert all(topic.owner.node != node.name for topic in world.newest().topics.values())
    node.ready = True
    world.run(10)
    assert world.newest().nodes[node.name].state == "up"


def a_node_whose_journal_stands_still_is_drained(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    for node in world.nodes.values():
        node.unlanded_ms = 60_000
    world.run(60)
    assert all(entry.state == "up" for _, entry in world.newest().members()), "the store is slow for all of them"
    node = other(world)
    for each in world.nodes.values():
        each.unlanded_ms = 60_000 if each is node else 200
    world.run(45)
    assert world.newest().nodes[node.name].state == "draining", "it keeps its topics"
    node.unlanded_ms = 0
    world.run(10)
    assert world.newest().nodes[node.name].state == "up"


def a_node_that_most_cannot_reach_is_drained(seed: int) -> None:
    """CM5"""
    pair = settled(seed, nodes=2)
    controller(pair).unreachable = (other(pair).name,)
    pair.run(45)
    assert all(entry.state == "up" for _, entry in pair.newest().members()), "of two nobody knows who is cut off"
    world = settled(seed)
    node = other(world)
    others = [each for each in world.nodes.values() if each is not node]
    others[0].unreachable = (node.name,)
    node.unreachable = tuple(each.name for each in others)
    world.run(45)
    assert all(entry.state == "up" for _, entry in world.newest().members()), "one node's word drains another"
    others[1].unreachable = (node.name,)
    world.run(45)
    assert world.newest().nodes[node.name].state == "draining", "it keeps its topics"
    assert all(entry.state == "up" for name, entry in world.newest().members() if name != node.name)


def one_without_redis_keeps_no_offsets(seed: int) -> None:
    """CG9"""
    world = MembersWorld(seed)
    world.tables[names.OFFSETS_TOPIC] = world.new_table(names.OFFSETS_TOPIC)
    world.run(SETTLED_SECONDS)
    keeper = world.nodes[world.newest().topics[names.OFFSETS_TOPIC].owner.node]
    for node in world.nodes.values():
        node.redisless = True
    world.run(30)
    assert world.newest().topics[names.OFFSETS_TOPIC].owner.node == keeper.name, "none could do better"
    rest = [node for node in world.nodes.values() if node is not keeper]
    rest[0].redisless = False
    world.run(20)
    assert world.newest().topics[names.OFFSETS_TOPIC].owner.node == rest[0].name, "all groups wait for its Redis"
    for node in rest[1:]:
        node.kill()
    world.run(30)
    assert world.newest().topics[names.OFFSETS_TOPIC].owner.node == rest[0].name
    world.add("n8").redisless = True
    world.run(60)
    assert world.newest().topics[names.OFFSETS_TOPIC].owner.node == rest[0].name, "balance gives it away"
    rest[0].redisless, keeper.redisless = True, False
    world.run(6)
    kept = world.newest().topics[names.OFFSETS_TOPIC]
    assert (kept.to or kept.owner).node == rest[0].name, "a moment without it moves it"


def a_node_that_nobody_reaches_is_drained_sooner(seed: int) -> None:
    """CM5"""
    world = settled(seed, nodes=4)
    node = other(world)
    accusers = [each for each in world.nodes.values() if each is not node]
    for accuser in accusers[1:]:
        accuser.unreachable = (node.name,)
    world.run(12)
    assert world.newest().nodes[node.name].state == "up", "one reaches it: that may be mended"
    accusers[0].unreachable = (node.name,)
    world.run(8)
    assert world.newest().nodes[node.name].state == "up", "a moment without a network moves its topics"
    world.run(8)
    assert world.newest().nodes[node.name].state == "draining", "its topics wait half a minute for nobody"
    world.run(3)
    assert all(topic.owner.node != node.name for topic in world.newest().topics.values())
    for accuser in accusers:
        accuser.unreachable = ()
    world.run(10)
    assert all(entry.state == "up" for _, entry in world.newest().members())


def a_move_that_came_to_nothing_is_made_again(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    node.kill()
    world.run(30)
    for each in world.nodes.values():
        each.keeps = 2
    node.start()
    world.run(40)
    owned = Counter(topic.owner.node for topic in world.newest().topics.values())
    assert owned[node.name] >= 1, "it is never given a topic"
    assert world.settled_problems() == []


def one_that_lets_nothing_go_is_taken_for_lost(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    node.ready, node.grips = False, True
    world.run(40)
    assert world.newest().nodes[node.name].state == "draining"
    world.run(30)
    assert node.name not in {topic.owner.node for topic in world.newest().topics.values()}, "it keeps its topics"


def a_term_that_nobody_claims_is_given_to_another(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    for node in world.nodes.values():
        node.silent.add("later")
    world.tables["later"] = Table()
    world.run(65)
    first = world.newest().topics["later"].chain[0].node
    for node in world.nodes.values():
        if node.name != first:
            node.silent.clear()
    world.run(40)
    assert world.newest().topics["later"].owner.node != first, "it waits for its owner for ever"
    assert world.settled_problems() == []


def a_topic_is_made_anew_while_its_owner_is_gone(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    name = next(name for name, topic in world.newest().topics.items() if topic.owner.node == node.name)
    before = world.newest().topics[name].owner.term
    node.kill()
    world.tables[name] = Table(topic_id="another")
    world.run(4 * PERIOD_SECONDS)
    topic = world.newest().topics[name]
    assert topic.topic_id == "another", "the topic that is gone is still owned"
    assert topic.chain[0].term > before, "a term of the topic that is gone is one of the new one"
    assert world.settled_problems() == []


def a_node_dies_while_its_controller_looks_at_tables(seed: int) -> None:
    """CM16"""
    world = settled(seed)
    world.survey_seconds = 60.0
    world.run(PERIOD_SECONDS + 15)
    node = other(world)
    node.kill()
    world.run(2 * TIMING.lease_s)
    assert world.newest().nodes[node.name].state == "away", "nobody looks at beats meanwhile"
    assert world.settled_problems() == []


def a_topic_is_deleted_while_its_table_is_looked_at(seed: int) -> None:
    """CM16"""
    world = settled(seed)
    world.survey_seconds = 40.0
    world.tables["brief"] = Table()
    world.run(PERIOD_SECONDS + 15)
    asked = other(world)
    world.wish(asked.name, "adopt", topic="brief", topic_id=world.topic_id("brief"))
    world.run(3)
    assert "brief" in world.newest().topics
    world.wish(asked.name, "forget", topic="brief", topic_id=world.topic_id("brief"))
    world.run(3)
    del world.tables["brief"]
    world.run(40)
    assert "brief" not in world.newest().topics, "what was found before a topic was deleted brings it back"
    assert world.settled_problems() == []


def the_first_view_names_all_topics(seed: int) -> None:
    """CM17"""
    world = MembersWorld(seed, nodes=1 + seed % 3, weather=ROUGH)
    for node in world.nodes.values():
        node.kill()
    world.first_term = 3
    for node in world.nodes.values():
        node.start()
        node.ready = False  # as one that does not listen yet
    while not world.views:
        world.run(0.1)
    topics = world.views[1].topics
    assert sorted(topics) == sorted(world.tables), "a topic that is there is unknown to its cluster"
    assert min(topic.owner.term for topic in topics.values()) > 3, "an epoch of before passes for that of a node"
    for node in world.nodes.values():
        node.ready = True
    world.objects.weather = Weather()
    world.objects.land(everything=True)
    world.run(2 * SETTLED_SECONDS)
    assert world.settled_problems() == []


def what_was_claimed_and_not_taken_goes_back(seed: int) -> None:
    """CM5"""
    world = settled(seed)
    node = other(world)
    name = next(name for name, topic in world.newest().topics.items() if topic.owner.node == node.name)
    node.forgotten = {name}
    node.silent = {name}
    world.run(25)
    assert world.newest().topics[name].owner.node != node.name
    node.silent.clear()
    world.run(60)
    assert world.settled_problems() == []


def what_a_target_claimed_and_did_not_take_goes_back(seed: int) -> None:
    """CM5"""
    world, target, name = claimed_by_a_target(seed)
    target.ready = False
    world.run(40)
    # While it takes nothing it is asked time and again, as nobody else can hand over what its claim has.
    assert owners_within(world, name, 20) - {target.name}, "it stays where nobody serves it"
    target.silent.clear()
    world.run(60)
    assert world.settled_problems() == []


def what_a_target_claimed_and_died_with_goes_back(seed: int) -> None:
    """CM5"""
    world, target, name = claimed_by_a_target(seed)
    world.tables[name].shipped = False
    target.kill()
    world.run(20)
    assert world.newest().topics[name].owner.node != target.name
    target.silent.clear()
    target.start()
    world.run(60)
    assert world.newest().topics[name].owner.node == target.name, "what its data directory has is never served"
    assert world.settled_problems() == []


def claimed_by_a_target(seed: int) -> tuple[MembersWorld, SimulatedNode, str]:
    """A topic whose next owner's claim has landed; its take of it failed after that, and it says nothing of it."""
    world = settled(seed)
    target = other(world)
    name = next(name for name, topic in world.newest().topics.items() if topic.owner.node != target.name)
    target.silent = {name}
    world.wish(controller(world).name, "move", topic=name, node=target.name)
    world.run(5)
    given, table = world.newest().topics[name].to, world.tables[name]
    assert given is not None and given.node == target.name and table.released == table.term
    table.term, table.data_dir = given.term, target.data_dir
    table.claimed.append(given.term)
    target.forgotten = {name}
    return world, target, name


def owners_within(world: MembersWorld, name: str, seconds: int) -> set[str]:
    """The owners that a topic had at the end of each of so many seconds, which pass."""
    found = set()
    for _ in range(seconds):
        world.run(1)
        found.add(world.newest().topics[name].owner.node)
    return found


def what_only_its_data_directory_has_goes_back_to_it(seed: int) -> None:
    """CM7"""
    world = settled(seed)
    node = other(world)
    name = next(name for name, topic in world.newest().topics.items() if topic.owner.node == node.name)
    world.tables[name].shipped = False
    node.kill()
    world.run(15)
    assert world.newest().topics[name].owner.node != node.name
    node.start()
    world.run(15)
    assert world.newest().topics[name].owner.node == node.name, "it is never served again"
    assert world.settled_problems() == []


def a_term_below_that_of_the_table_is_raised(seed: int) -> None:
    """CM8"""
    world = settled(seed)
    world.tables["later"] = Table(term=1_000, released=1_000, claimed=[1_000])
    world.run(75)
    assert world.settled_problems() == []
    assert world.newest().topics["later"].owner.term > 1_000


def a_target_dies_and_its_term_stays(seed: int) -> None:
    """CM8"""
    world = settled(seed)
    target = other(world)
    name = next(name for name, topic in world.newest().topics.items() if topic.owner.node != target.name)
    target.silent = {name}
    world.wish("n0", "move", topic=name, node=target.name)
    world.run(5)
    given = world.newest().topics[name].to
    assert given is not None
    assert given.node == target.name
    target.kill()
    world.run(15)
    assert world.newest().topics[name].owner.node != target.name
    assert given.term not in world.tables[name].claimed
    assert given.term < world.newest().topics[name].owner.term == world.tables[name].term


def releases_go_up_one_node_after_the_other(seed: int) -> None:
    """CM11"""
    world = settled(seed)

    def start(node: SimulatedNode, formats: int) -> None:
        node.kill()
        node.formats = formats
        node.start()
        world.run(2 * SETTLED_SECONDS)

    first, back, last = world.nodes.values()
    start(first, 2)
    start(back, 2)
    start(back, 1)
    assert not back.refused, "who went back a release was shut out"
    start(back, 2)
    world.run(OFFERED_SECONDS)
    assert world.newest().format == 1, "a member still reads no more than that"
    start(last, 2)
    world.run(OFFERED_SECONDS / 2)
    assert world.newest().format == 1, "nobody could go back"
    # The controller's clock may be slow.
    world.run(OFFERED_SECONDS * 0.7 + 2 * TIMING.lease_s)
    assert world.newest().format == 2, "it was offered by all"
    assert world.settled_problems() == []
    start(back, 1)
    assert "reads formats up to 1: upgrade this node" in back.refused, "it goes by what it cannot read"
    start(back, 2)
    assert world.settled_problems() == []


def drive(turn, store):  # type: ignore[no-untyped-def]
    """Runs steps to their end, with nothing in between."""
    try:
        call = next(turn)
        while True:
            try:
                answer = call(store)
            except Exception as error:
                call = turn.throw(error)
            else:
                call = turn.send(answer)
    except StopIteration as ended:
        return ended.value


def replaced(view: ClusterView, number: int, nonce: str = "") -> ClusterView:
    fields = encode_view(view).replace(f'"number":{view.number},'.encode(), f'"number":{number},'.encode())
    fields = fields.replace(f'"nonce":"{view.nonce}"'.encode(), f'"nonce":"{nonce or number}"'.encode())
    return decode_view(fields, number)


SCENARIOS = (
    a_sleeper_writes_a_number_that_was_cleaned,
    who_sleeps_through_many_views_finds_the_newest,
    a_start_on_the_same_data_directory_is_listed_at_once,
    a_name_that_is_up_is_refused,
    a_copy_of_a_data_directory_is_refused,
    one_with_another_secret_is_refused_while_the_controller_lives,
    a_controller_that_comes_again_with_another_secret_is_refused,
    all_are_given_another_secret_while_none_is_up,
    a_data_directory_comes_up_on_another_machine,
    all_machines_are_started_anew,
    a_controller_that_dies_is_replaced,
    a_planner_that_raises_is_replaced,
    all_sleep_and_one_wakes_first,
    the_store_is_away_for_a_minute,
    one_that_hears_nothing_of_the_store_is_lost,
    who_is_answered_late_beats_on,
    one_that_refuses_connections_is_lost_sooner,
    a_controller_that_refuses_connections_is_replaced_sooner,
    one_that_refuses_connections_and_beats_stays,
    most_die_at_once,
    who_was_lost_comes_back_with_another_journal,
    a_beat_of_a_lost_journal_comes_late,
    a_node_that_cannot_acknowledge_is_drained,
    a_node_whose_journal_stands_still_is_drained,
    a_node_that_most_cannot_reach_is_drained,
    a_node_that_nobody_reaches_is_drained_sooner,
    one_without_redis_keeps_no_offsets,
    a_move_that_came_to_nothing_is_made_again,
    one_that_lets_nothing_go_is_taken_for_lost,
    a_term_that_nobody_claims_is_given_to_another,
    a_topic_is_made_anew_while_its_owner_is_gone,
    a_node_dies_while_its_controller_looks_at_tables,
    a_topic_is_deleted_while_its_table_is_looked_at,
    the_first_view_names_all_topics,
    what_was_claimed_and_not_taken_goes_back,
    what_a_target_claimed_and_did_not_take_goes_back,
    what_a_target_claimed_and_died_with_goes_back,
    what_only_its_data_directory_has_goes_back_to_it,
    a_term_below_that_of_the_table_is_raised,
    a_target_dies_and_its_term_stays,
    releases_go_up_one_node_after_the_other,
)
