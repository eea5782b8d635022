from siltlog.infra import names
from siltlog.infra.http.draining import Draining


def test_runs_of_jobs_are_told_until_they_have_ended() -> None:
    draining = Draining()
    assert not draining.begun and not draining.refuses("t")
    draining.begin(taking_runs=True)
    assert draining.begun and draining.refuses("t") and not draining.refuses(names.JOBS_TOPIC)
    draining.runs_are_told()
    assert draining.begun and draining.refuses(names.JOBS_TOPIC)


def test_without_a_schedule_nothing_is_taken() -> None:
    draining = Draining()
    draining.begin(taking_runs=False)
    assert draining.refuses(names.JOBS_TOPIC)


def test_what_was_begun_before_the_drain_is_audited_in_it() -> None:
    draining = Draining()
    draining.begin(taking_runs=False)
    assert not draining.refuses(names.AUDIT_TOPIC)
