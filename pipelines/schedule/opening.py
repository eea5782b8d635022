"""The schedule as `silt serve` and `silt schedule` run it: which commands its jobs are, and how they are told of."""

import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec

from siltlog.infra import names
from siltlog.infra.client import calls, job_calls
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.credentials.choice import environment_of
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, Forbidden, Refused, SiltlogError, Unauthenticated
from siltlog.infra.settings.loading import environment_with
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import Logger
from siltlog.pipelines.schedule.crowded import LiveFiles
from siltlog.pipelines.schedule.lease import LEASE_MS, ScheduleLease
from siltlog.pipelines.schedule.process import STOP_SECONDS, JobProcess
from siltlog.pipelines.schedule.runs import JobRunRequest, Trigger, command_of
from siltlog.pipelines.schedule.scheduler import SETTLE_SECONDS, SPARK_JOBS, Scheduler, Start
from siltlog.pipelines.spark.java import find_java

TELL_MS = 2_000
"""How long a server that is away is waited for to be told of a run."""
ASK_SECONDS = 30.0
"""How often a server is asked for the files of its tables: the answer names every topic."""
MODULE = "siltlog.cli.job_process"


def scheduler(
    settings: ServerSettings,
    url: str,
    clock: Clock,
    logger: Logger,
    *,
    live_files: Callable[[], LiveFiles] | None = None,
    lease_ms: int = LEASE_MS,
    settle_seconds: float = SETTLE_SECONDS,
    holder_file: Path | None = None,
    credentials: Credentials | None = None,
) -> Scheduler:
    """A runner of the jobs that `settings` name. `url` is where they tell of their runs, by `credentials`.

    `live_files` counts the files of the tables; unless it is given, the server at `url` is asked. `holder_file` is of
    whoever alone runs the schedule now, and remembers the runner before, whose lease need not run out then.
    """
    given = credentials or Credentials()
    store = open_store(settings.root_uri, **settings.s3_options())
    holder = str(uuid.uuid4())
    former = "" if holder_file is None else _succeed(holder_file, holder)
    lease = ScheduleLease(store, holder, settings.node_id, clock, lease_ms, former=former)
    return Scheduler(
        settings.crons(),
        lease,
        _starting(settings, url, logger, given),
        clock,
        logger,
        new_run_id=lambda: str(uuid.uuid4()),
        unavailable=_unavailable,
        record=lambda run: _tell(run, url, given, clock, logger),
        live_files=live_files or LiveFilesOfServer(url, clock, given),
        settle_seconds=settle_seconds,
    )


def _succeed(holder_file: Path, holder: str) -> str:
    """Writes down who runs the schedule of a data dir; who did before."""
    try:
        former = holder_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        former = ""
    with suppress(OSError):
        holder_file.write_text(holder, "utf-8")
    return former


class ScheduleThread:
    """A scheduler on a thread of its own: a signal's handler cannot take the locks that it uses."""

    def __init__(self, runner: Scheduler) -> None:
        self._runner = runner
        self._thread = threading.Thread(target=runner.run, name="schedule", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Whether it has ended, by itself; waits so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends its jobs; waits for them as long as they may take, and no longer for an object store."""
        self._runner.stop()
        self._thread.join(2 * STOP_SECONDS)


class LiveFilesOfServer:
    """Asks seldom, and says that there are none where no server answers."""

    def __init__(self, url: str, clock: Clock, credentials: Credentials | None = None) -> None:
        self._url = url
        self._credentials = credentials
        self._clock = clock
        self._asked_at: float | None = None
        self._found: LiveFiles = {}

    def __call__(self) -> LiveFiles:
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            endpoints = Endpoints(self._url)
            try:
                with closing(open_transport(endpoints, self._clock, self._credentials)) as transport:
                    caller = Caller(endpoints, transport, self._clock, retry_timeout_ms=0)
                    self._found = {topic["name"]: topic["files"] for topic in caller.run(calls.topics(None))}
            except SiltlogError:
                self._found = {}
        return self._found


def _starting(settings: ServerSettings, url: str, logger: Logger, credentials: Credentials) -> Start:
    """Jobs see the settings of whoever runs the schedule, flags included."""
    given = {
        "ROOT": settings.root_uri,
        "DATA_DIR": str(settings.data_dir),
        "S3_ENDPOINT": settings.s3_endpoint,
        "S3_REGION": settings.s3_region,
        "S3_SSE": settings.s3_sse,
        "S3_KMS_KEY_ID": settings.s3_kms_key_id,
        "CATALOG_GLUE": settings.catalog_glue,
        "CATALOG_REGION": settings.catalog_region,
        "CATALOG_UNITY": settings.catalog_unity,
        "CATALOG_SCHEMA": settings.catalog_schema,
        "CATALOG_TOKEN_FILE": settings.catalog_token_file,
        "TRACES": settings.traces,
        # It serves nobody, and has not the secret that a node needs which asks who calls.
        "AUTH": "off",
    }
    common = {names.ENV_PREFIX + name: value for name, value in given.items() if value} | {names.ENV_URL: url}
    common |= environment_of(credentials)

    def start(job: str, run_id: str, trigger: Trigger, niceness: int, on_end: Callable[[], None]) -> JobProcess:
        environment = environment_with({**common, names.ENV_RUN_ID: run_id, names.ENV_RUN_TRIGGER: trigger})
        return JobProcess(job, _command(job, niceness), environment, logger, on_end)

    return start


def _command(job: str, niceness: int) -> Sequence[str]:
    return [sys.executable, "-m", MODULE, str(niceness), *command_of(job)]


def _unavailable(job: str) -> str | None:
    if job not in SPARK_JOBS:
        return None
    if find_spec("pyspark") is None:
        return "it needs Spark: pip install 'siltlog[spark]'"
    try:
        find_java()
    except ConfigError as error:
        return error.detail
    return None


def _tell(run: JobRunRequest, url: str, credentials: Credentials, clock: Clock, logger: Logger) -> bool:
    """Tells the server of a run, unless the job told of itself before. False where it may be told later."""
    endpoints = Endpoints(url)
    try:
        with closing(open_transport(endpoints, clock, credentials)) as transport:
            caller = Caller(endpoints, transport, clock, retry_timeout_ms=TELL_MS)
            caller.run(job_calls.record_job(msgspec.to_builtins(run)))
    except SiltlogError as error:
        logger.warning("a run is not in _jobs", job=run.job, run_id=run.run_id, reason=error.detail)
        return isinstance(error, Refused) and not isinstance(error, Unauthenticated | Forbidden)
    return True
