import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.kafka.epoch import BEGINS_MS, EPOCH_MAX, epoch_of, generation_of


@pytest.mark.rule("KF16")
@given(st.integers(0, EPOCH_MAX))
def test_an_epoch_is_a_generation_and_the_other_way_round(epoch: int) -> None:
    assert epoch_of(generation_of(epoch)) == epoch
    assert generation_of(epoch) % 1_000 == 0


@given(st.integers(BEGINS_MS + 1, BEGINS_MS + EPOCH_MAX * 1_000))
def test_a_generation_of_a_former_release_counts_as_the_second_after_it(generation: int) -> None:
    told = generation_of(epoch_of(generation))
    assert generation <= told < generation + 1_000


def test_a_group_without_members_has_the_epoch_of_none() -> None:
    assert epoch_of(0) == generation_of(0) == 0
