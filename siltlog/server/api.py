"""The whole API: what handles its operations, in the order in which the document tells of them.

`python -m siltlog.server.api > docs/openapi.json` writes the document.
"""

import sys

from siltlog.consumers.dead_letters.http import DeadLettersHttp
from siltlog.consumers.groups.http import GroupsHttp
from siltlog.consumers.groups.members_http import MembersHttp
from siltlog.consumers.push.events import Tails
from siltlog.consumers.push.sockets import Sockets
from siltlog.consumers.reading.files_http import FilesHttp
from siltlog.consumers.reading.http import ReadsHttp
from siltlog.consumers.searching.http import SearchHttp
from siltlog.consumers.sql.http import SqlHttp
from siltlog.infra.http.operations import operations_of
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.producers_http import ProducersHttp
from siltlog.ingest.topics.http import TopicsHttp
from siltlog.ingest.topics.records_http import RecordsHttp
from siltlog.openapi.document import document, encoded
from siltlog.server.access.http import AccessHttp
from siltlog.server.access.keys_http import KeysHttp
from siltlog.server.access.login_http import LoginHttp
from siltlog.server.access.provider_http import ProviderHttp
from siltlog.server.audit_http import AuditHttp
from siltlog.server.cluster.http import NodesHttp
from siltlog.server.control.drain_http import DrainHttp
from siltlog.server.control.job_runs_http import JobRunsHttp
from siltlog.server.control.profile_http import ProfileHttp
from siltlog.server.control.settle_http import SettleHttp
from siltlog.server.document_http import DocumentHttp
from siltlog.server.history.http import HistoryHttp
from siltlog.server.jobs_http import JobsHttp
from siltlog.server.live.http import LiveHttp
from siltlog.server.node_http import NodeHttp
from siltlog.server.settings.http import ConfigHttp
from siltlog.server.tables.http import TablesHttp
from siltlog.ui.http import PageHttp

HANDLERS = (
    Publish,
    ProducersHttp,
    ReadsHttp,
    FilesHttp,
    SearchHttp,
    SqlHttp,
    RecordsHttp,
    Tails,
    Sockets,
    TopicsHttp,
    TablesHttp,
    MembersHttp,
    GroupsHttp,
    DeadLettersHttp,
    JobsHttp,
    JobRunsHttp,
    AccessHttp,
    KeysHttp,
    LoginHttp,
    ProviderHttp,
    AuditHttp,
    NodeHttp,
    HistoryHttp,
    LiveHttp,
    ConfigHttp,
    DrainHttp,
    SettleHttp,
    ProfileHttp,
    NodesHttp,
    DocumentHttp,
    PageHttp,
)
OPERATIONS = tuple(operations_of(*HANDLERS))

if __name__ == "__main__":
    sys.stdout.buffer.write(encoded(document(OPERATIONS)) + b"\n")
