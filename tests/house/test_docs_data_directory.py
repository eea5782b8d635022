"""Every command of docs/data-directory.md, against a real server."""

from pathlib import Path

import doc_page
import pyarrow as pa
import pytest

from siltlog import Admin
from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "data-directory.md"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    with running_server(schedule="off") as server, Admin(server.url) as admin:
        topic_id = admin.create_topic("orders", partitions=1)["topic_id"]
        path = tmp_path / "old-data" / names.STRANDED_FOLDER / names.stranded_file("orders", topic_id, 0, 7, 41)
        path.parent.mkdir(parents=True)
        rows = [{"partition": 0, "offset": at, "timestamp": at, "value": b"{}"} for at in (41, 42, 43)]
        with pa.ipc.new_file(str(path), RECORD_SCHEMA) as writer:
            writer.write_table(pa.Table.from_pylist(rows, RECORD_SCHEMA))
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path) == 2


def test_every_file_of_security_is_named_with_what_its_loss_means() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    told = {row.split("`")[1] for row in rows if len(row.strip("|").split("|")) == 4}
    files = {
        names.SECRET_FILE,
        names.ACCESS_SEEN_FILE,
        names.ACCESS_HELD_FILE,
        names.SESSIONS_ENDED_FILE,
        names.AUDIT_SEEN_FILE,
        names.AUDIT_OWED_FILE,
        names.SOCKET_FILE,
    }
    assert told == files
