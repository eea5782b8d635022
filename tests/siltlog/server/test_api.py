"""What the operations of the API state."""

from siltlog.server.api import OPERATIONS

OF_DATA = {
    "publish", "claimProducer", "fetch", "searchTopic", "runSql", "listFiles", "heartbeat", "leaveGroup", "poll",
    "commitOffsets", "countAttempt", "giveUpRecord", "nack", "recordJobRun",
}  # fmt: skip
"""What comes by the thousand and is recorded elsewhere or nowhere: records, reads, members, runs of jobs."""
COUNTED = {"logIn", "logOut", "renewLogin"}
"""Counted before it is recorded, as refusals are."""
ASKING = {"checkAccess"}
"""Asks by POST, and changes nothing."""
REVOKING = {"revokeKey"}


def test_whatever_changes_something_is_recorded() -> None:
    for stated in OPERATIONS:
        reads_only = stated.method == "GET" or stated.operation_id in OF_DATA | ASKING | COUNTED
        assert (stated.changes == "nothing") == reads_only, stated.operation_id
        assert stated.changes != "in_path" or "{" in stated.path, stated.operation_id
        if stated.changes != "nothing" and stated.access in ("in_body", "filtered"):
            # Who may not would leave an intent each time that he tries.
            assert stated.changes == "in_body", stated.operation_id


def test_only_what_takes_a_right_away_is_done_without_its_record() -> None:
    assert {stated.operation_id for stated in OPERATIONS if stated.changes == "revokes"} <= REVOKING


def test_the_operations_that_answer_with_records() -> None:
    assert {stated.operation_id for stated in OPERATIONS if stated.reads} == {
        "readRecords", "fetch", "searchTopic", "runSql", "listDeadLetters", "poll", "tailTopic", "openTopicSocket",
        "openGroupSocket",
    }  # fmt: skip
