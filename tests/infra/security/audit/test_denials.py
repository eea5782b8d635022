import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.audit.chain import Audited
from siltlog.infra.security.audit.denials import CALLERS_MAX, Denials


def denied(caller: int, code: str = "forbidden", number: int = 0) -> Audited:
    return Audited(
        request_id=f"r{number}",
        principal=f"key:{caller}",
        operation="publish",
        outcome="refused",
        status=403,
        detail=code,
    )


@pytest.mark.rule("A7")
@given(st.lists(st.tuples(st.integers(0, 2 * CALLERS_MAX), st.sampled_from(["forbidden", "unknown"])), max_size=600))
def test_nothing_is_left_uncounted_and_the_callers_are_bounded(came: list[tuple[int, str]]) -> None:
    denials = Denials()
    for number, (caller, code) in enumerate(came):
        denials.count(denied(caller, code, number))
    taken = denials.take()
    assert sum(record.count for record in taken) == len(came)
    assert len(taken) <= CALLERS_MAX + 2
    assert sum(record.count for record in taken if record.detail == "unknown") == sum(
        code == "unknown" for _, code in came
    )
    assert denials.take() == []


def test_the_first_of_those_that_are_alike_is_recorded() -> None:
    denials = Denials()
    for number in range(3):
        denials.count(denied(1, number=number))
    [record] = denials.take()
    assert (record.request_id, record.count) == ("r0", 3)
