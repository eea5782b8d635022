"""Properties of the assignment."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.groups.assignment import Partition, assign

MEMBERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
COUNTS = st.dictionaries(st.sampled_from(["t", "u", "v", "w"]), st.integers(1, 9), max_size=4)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, int], dict[Partition, str]]:
    """Subscriptions of several kinds, and what was held before, by members and topics that may be gone."""
    counts = draw(COUNTS)
    topics = st.lists(st.sampled_from(["t", "u", "v", "w", "gone"]), unique=True)
    subscriptions = {member: draw(topics) for member in draw(MEMBERS)}
    partitions = st.tuples(st.sampled_from(["t", "u", "v", "w", "gone"]), st.integers(0, 11))
    return subscriptions, counts, draw(st.dictionaries(partitions, st.sampled_from("abcdefghxyz"), max_size=20))


def loads(target: dict[Partition, str], members: dict[str, list[str]]) -> dict[str, int]:
    return dict.fromkeys(members, 0) | Counter(target.values())


@given(groups())
def test_every_partition_goes_to_one_subscriber_and_nobody_could_be_closer(
    group: tuple[dict[str, list[str]], dict[str, int], dict[Partition, str]],
) -> None:
    subscriptions, counts, current = group
    target = assign(subscriptions, counts, current)
    wanted = {topic for topics in subscriptions.values() for topic in topics} & set(counts)
    assert set(target) == {(topic, number) for topic in wanted for number in range(counts[topic])}
    load = loads(target, subscriptions)
    for (topic, _), member in target.items():
        assert topic in subscriptions[member]
        assert all(load[member] - load[other] < 2 for other in subscriptions if topic in subscriptions[other])


@given(groups())
def test_it_is_deterministic_and_stable(
    group: tuple[dict[str, list[str]], dict[str, int], dict[Partition, str]],
) -> None:
    subscriptions, counts, current = group
    target = assign(subscriptions, counts, current)
    shuffled = {member: list(reversed(subscriptions[member])) for member in reversed(list(subscriptions))}
    assert assign(shuffled, dict(reversed(counts.items())), dict(reversed(current.items()))) == target
    assert assign(subscriptions, counts, target) == target


@given(groups())
def test_who_leaves_moves_only_its_own(
    group: tuple[dict[str, list[str]], dict[str, int], dict[Partition, str]],
) -> None:
    _, counts, current = group
    members = {member: list(counts) for member in "abcde"}
    before = assign(members, counts, current)
    del members["c"]
    after = assign(members, counts, before)
    assert all(after[partition] == member for partition, member in before.items() if member != "c")


@given(MEMBERS.filter(bool), COUNTS, st.data())
def test_no_fewer_moves_would_do(members: list[str], counts: dict[str, int], data: st.DataObject) -> None:
    """Where all subscribe to the same: the least that any balanced assignment moves (each member above its quota gives
    what is above; those who hold most have the larger quotas)."""
    partitions = [(topic, number) for topic in counts for number in range(counts[topic])]
    current = {partition: data.draw(st.sampled_from(members)) for partition in partitions}
    target = assign({member: list(counts) for member in members}, counts, current)
    share, extra = divmod(len(partitions), len(members))
    held = sorted(loads(current, {member: [] for member in members}).values(), reverse=True)
    least = sum(max(load - share - (rank < extra), 0) for rank, load in enumerate(held))
    assert sum(target[partition] != member for partition, member in current.items()) == least


def test_a_thousand_members_share_ten_thousand_partitions() -> None:
    members = {f"m{number:04d}": ["big"] for number in range(1_000)}
    target = assign(members, {"big": 10_000}, {})
    assert set(Counter(target.values()).values()) == {10}
    assert assign(members, {"big": 10_000}, target) == target
