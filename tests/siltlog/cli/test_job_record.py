"""What a server is told of a run that did not come to its end."""

from collections.abc import Iterator

import pytest
from http_rig import NO_REDIS, Http

from siltlog.cli.job_record import recorded
from siltlog.cli.session import Session
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url=NO_REDIS) as server:
        yield server


@pytest.fixture
def session(server: ServerProcess) -> Session:
    session = Session()
    session.given_url = server.url
    return session


def _newest(session: Session, job: str) -> str:
    outcome: str = Http(session.url).get(f"/v1/jobs?job={job}").json["jobs"][0]["outcome"]
    return outcome


def test_a_run_that_is_interrupted_did_not_succeed(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), recorded(session, None, "backup", [], dry_run=False):
        raise KeyboardInterrupt
    assert _newest(session, "backup") == "interrupted"


def test_nor_did_one_that_is_interrupted_again_before_it_is_told_of_the_first(session: Session) -> None:
    run = recorded(session, None, "restore", [], dry_run=False)
    run.__enter__()
    # It is left like this where a second interrupt comes before `with` has passed the first one on.
    del run
    assert _newest(session, "restore") == "interrupted"
