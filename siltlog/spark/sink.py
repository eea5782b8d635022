"""Writing: tasks stage what they have, the driver publishes a whole batch from there, in order and once.

The producer is the writer's; its sequences are the numbers of the writer's records (`infra/client/resumable.py`).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from siltlog.infra import names
from siltlog.infra.client import calls
from siltlog.infra.client.address import S3Address, default_s3
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.bodies.arrow_body import IGNORED, PUBLISHED
from siltlog.infra.client.bodies.chunks import chunked
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.resumable import RETRY_MS, Options, Publication, Stopped
from siltlog.infra.client.transport import Caller, Transport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import ConfigError, SiltlogError, of_the_record, problem
from siltlog.infra.store.store import open_store
from siltlog.spark.columns import TIMESTAMP_TYPE
from siltlog.spark.options import WriteOptions
from siltlog.spark.staging import Last, Manifest, StagedFile, Staging

REQUEST_SHARE = 0.9
"""Size of a request, as a share of the largest that the server takes."""
RECORDS_MAX = 100_000
"""Records of one request."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The files that one task wrote."""

    files: tuple[StagedFile, ...]


class Sink:
    """One topic, one writer: what tasks and the driver share."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        """Raises ConfigError for columns that a record does not have."""
        self._options = options
        _check_columns(columns)
        self._run = uuid4().hex
        self._writer_id = options.writer_id or (None if options.staging_location else str(uuid4()))
        self._location = options.staging_location or f"{_root_of(options)}/{names.STAGING_FOLDER}/{self._writer_id}"
        self._s3: S3Address = default_s3()

    def _staging(self, clock: Clock) -> Staging:
        store = open_store(self._location, **self._s3.options())
        return Staging(store, clock)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stages batches, on an executor."""
        return Staged(tuple(self._staging(SystemClock()).stage(self._run, (as_records(batch) for batch in batches))))

    def publish(self, batch: int, messages: Sequence[Staged | None]) -> None:
        """Publishes on the driver, once every task has staged. A batch that was published is left alone."""
        clock = SystemClock()
        staging = self._staging(clock)
        writer_id = staging.writer_id(self._options.topic, self._writer_id)
        files = _files(messages)
        last = staging.last_published()
        if batch < last.batch:
            staging.discard(files)
            raise problem(
                "invalid_request",
                f"batch {batch} comes after batch {last.batch} of the same writer, {writer_id!r}, was published: if "
                "its checkpoint was removed, or set back, give it another stagingLocation or writerId to publish anew",
            )
        if batch == last.batch:
            staging.clean(batch)
            staging.discard(files)
            return
        endpoints = Endpoints(self._options.url)
        with closing(open_transport(endpoints, clock, self._options.credentials)) as transport:
            publisher = Publisher(self._options, writer_id, staging, transport, clock)
            for number in staging.waiting():
                if last.batch < number < batch:
                    last = publisher.publish(number, staging.decided(number))
            manifest = staging.decide(batch, files, last.end_record)
            used = set(manifest.files)
            publisher.publish(batch, manifest)
        staging.discard([file for file in files if file not in used])

    def discard(self, messages: Sequence[Staged | None]) -> None:
        """Discards on the driver, when a task or publishing failed: what a batch is to be ended with stays."""
        staging = self._staging(SystemClock())
        used = {file for number in staging.waiting() for file in staging.decided(number).files}
        staging.discard([file for file in _files(messages) if file not in used])

    def forget(self) -> None:
        """Removes all there is of a writer that nobody comes back to."""
        self._staging(SystemClock()).remove()
        if self._options.staging_location is None:
            lake, _, folder = self._location.rpartition("/")
            open_store(lake, **self._s3.options()).prune(folder)


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self._sink = Sink(options, columns)
        self._batch = options.batch_id or 0
        self._named = options.batch_id is not None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._sink.stage(iterator)

    def commit(self, messages: list[Staged | None]) -> None:
        self._sink.publish(self._batch, messages)
        if not self._named:
            self._sink.forget()

    def abort(self, messages: list[Staged | None]) -> None:
        if self._named:
            self._sink.discard(messages)
        else:
            self._sink.forget()


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self._sink = Sink(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._sink.stage(iterator)

    def commit(self, messages: list[Staged | None], batchId: int) -> None:
        self._sink.publish(batchId, messages)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:
        self._sink.discard(messages)


class Publisher:
    """Publishes staged batches of one writer, each from where an earlier try stopped."""

    def __init__(
        self, options: WriteOptions, writer_id: str, staging: Staging, transport: Transport, clock: Clock
    ) -> None:
        self._options = options
        self._producer_id = f"spark-{writer_id}"[: names.NAME_CHARS_MAX]
        self._staging = staging
        self._clock = clock
        self._caller = Caller(Endpoints(options.url), transport, clock, retry_timeout_ms=RETRY_MS)

    def publish(self, batch: int, manifest: Manifest) -> Last:
        publication = None
        try:
            if manifest.rows:
                publication = self._publication(batch, manifest)
                for chunk in chunked(self._staging.records(manifest)):
                    for _ in publication.publish(chunk):
                        pass
        except Stopped as stopped:
            raise self._refused(batch, publication, stopped) from stopped.error
        self._staging.end(batch, manifest)
        return Last(batch, manifest.first_record + manifest.rows)

    def _publication(self, batch: int, manifest: Manifest) -> Publication:
        limits = self._caller.run(calls.cluster())["limits"]
        config = self._caller.run(calls.topic(self._options.topic))["config"]
        options = Options(
            self._options.acks,
            self._options.compression,
            request_bytes=int(limits["request_bytes"] * REQUEST_SHARE),
            records_max=RECORDS_MAX,
        )
        publication = Publication(
            self._caller,
            self._options.topic,
            options,
            self._producer_id,
            first_record=manifest.first_record,
            first_chunk=batch,
        )
        age_ms = self._clock.now_us() // 1000 - manifest.staged_at_ms
        if publication.resumed_record < manifest.first_record and age_ms >= config["producer.expiration.ms"]["value"]:
            raise problem(
                "unknown_producer",
                f"batch {batch} was staged {age_ms // 1000} s ago, and the server has forgotten since whether it was "
                f"published (producer.expiration.ms of topic {self._options.topic}): if the topic has none of its "
                f"records, remove {self._staging.place_of(batch)} and start again",
            )
        return publication

    def _refused(self, batch: int, publication: Publication | None, stopped: Stopped) -> SiltlogError:
        if publication is not None and publication.count + publication.already == 0:
            self._staging.undo(batch)
            then = "nothing of the batch was published: mend the query and start it again"
        else:
            then = (
                "the records before it are published: let the topic take it, or remove "
                f"{self._staging.place_of(batch)} to give up what is left of the batch"
            )
        error = stopped.error
        what = f"a record was refused: {of_the_record(error)}"
        return problem(error.error_code, f"{what} (batch {batch} to topic {self._options.topic}; {then})")


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that a publish takes, with the types they are stored with. Raises Refused for a row that cannot be
    published as it is."""
    arrays: dict[str, pa.Array] = {}
    for name, type_ in PUBLISHED.items():
        if name in batch.schema.names:
            given = batch.schema.field(name).type
            if pa.types.is_timestamp(type_) and given != pa.null() and getattr(given, "tz", None) is None:
                raise ConfigError(
                    f"the column {name} is {given}, which is no moment: make one of it with cast('timestamp'), "
                    "timestamp_millis() or to_timestamp()"
                )
            try:
                arrays[name] = batch.column(name).cast(type_)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConfigError(
                    f"the column {name} cannot be published as {type_}: {error}; make text of it with "
                    "to_json() or cast('string')"
                ) from None
    value, key = arrays["value"], arrays.get("key")
    if value.null_count and (key is None or pc.any(pc.and_(pc.is_null(value), pc.is_null(key))).as_py()):
        raise problem("invalid_record", "a row has neither key nor value: a null value, a tombstone, needs a key")
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _files(messages: Sequence[Staged | None]) -> list[StagedFile]:
    return [file for message in messages if message is not None for file in message.files]


def _root_of(options: WriteOptions) -> str:
    with Admin(options.url, **options.credentials.keywords) as admin:
        uri = str(admin.topic(options.topic)["table_uri"])
    return uri.removesuffix(f"/{names.topic_path(options.topic)}")


def _check_columns(columns: Sequence[str]) -> None:
    known = {*PUBLISHED, *IGNORED, TIMESTAMP_TYPE}
    strange = [name for name in columns if name not in known]
    if strange or "value" not in columns:
        wrong = f"has no column {strange[0]!r}" if strange else "needs a column value"
        raise ConfigError(
            f"a record {wrong}: select {', '.join(PUBLISHED)}, of which only value is needed, for example "
            "selectExpr('to_json(struct(*)) AS value')"
        )
