"""The options of `format("siltlog")`, checked before anything is read or written. Their names are in any case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import quote

import msgspec

from siltlog.consumers.library.sources.choice import READS, Read
from siltlog.consumers.library.sources.server import Isolation
from siltlog.infra import names
from siltlog.infra.client.address import default_url
from siltlog.infra.client.credentials.choice import checked_token_file, chosen
from siltlog.infra.client.credentials.credentials import Credentials, Token, check_may_carry
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.record import time_us
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US
from siltlog.infra.errors import ConfigError

EARLIEST = -2
LATEST = -1
"""Kafka's numbers for the ends of a partition, in offsets given as JSON."""
RECORDS_PER_TASK = 1_000_000
COMPRESSIONS = ("none", "lz4", "zstd")
ACKS = ("written", "wal", "object", "table")

Edge = Literal["earliest", "latest"]
ByPartition = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset, EARLIEST or LATEST."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The lowest offset at or after it, in each partition; `us` since 1970 (UTC)."""

    us: int


@dataclass(frozen=True, slots=True)
class Moments:
    """The same with a time for each partition: topic -> partition -> microseconds."""

    us: ByPartition


Bound = Edge | ByPartition | Moment | Moments

_READING = (
    "topic",
    "subscribe",
    "path",
    "url",
    "tokenFile",
    "token",
    "ca",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "isolation",
    "read",
)
_WRITING = (
    "topic",
    "path",
    "url",
    "tokenFile",
    "token",
    "ca",
    "checkpointLocation",
    "stagingLocation",
    "writerId",
    "batchId",
    "acks",
    "compression",
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    topics: tuple[str, ...]
    url: str
    credentials: Credentials
    """The driver's credentials, which tasks have too. Nothing prints a token."""
    starting: Bound
    ending: Bound
    max_offsets_per_trigger: int | None
    records_per_task: int
    fail_on_data_loss: bool
    isolation: Isolation
    read: Read


@dataclass(frozen=True, slots=True)
class WriteOptions:
    topic: str
    url: str
    credentials: Credentials
    staging_location: str | None
    """The folder that the batches of one writer are staged in; None: where the topic's tables are."""
    writer_id: str | None
    batch_id: int | None
    acks: str | None
    compression: Literal["none", "lz4", "zstd"]


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Raises ConfigError that names the option."""
    options = _known(given, _READING)
    topics = _topics(options)
    starting = _bound(options, "starting", "earliest", topics)
    ending = _bound(options, "ending", "latest", topics)
    if streaming and any(name.startswith("ending") for name in options):
        raise ConfigError("a stream has no end: leave out what says where it ends, or read a batch")
    if ending == "earliest" or (starting == "latest" and not streaming):
        raise ConfigError("a batch reads from startingOffsets, which is not latest, to endingOffsets, not earliest")
    _check_order(starting, ending)
    limit = _whole(options, "maxOffsetsPerTrigger", None)
    if limit is not None and not streaming:
        raise ConfigError("maxOffsetsPerTrigger is for streams; a batch reads all of its range")
    isolation = _one_of(options, "isolation", ("wal", "table"), "wal")
    read = _one_of(options, "read", READS, "auto")
    url = _url(options)
    return ReadOptions(
        topics=topics,
        url=url,
        credentials=_credentials(options, url),
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=limit,
        records_per_task=_whole(options, "maxRecordsPerPartition", RECORDS_PER_TASK) or RECORDS_PER_TASK,
        fail_on_data_loss=_one_of(options, "failOnDataLoss", ("true", "false"), "true") == "true",
        # Who reads nothing but the table sees nothing but the table.
        isolation=cast(Isolation, "table" if read == "table" else isolation),
        read=cast(Read, read),
    )


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Raises ConfigError that names the option."""
    options = _known(given, _WRITING)
    topics = _topics(options)
    if len(topics) > 1:
        raise ConfigError(f"one topic is written to at a time, not {len(topics)}: {', '.join(topics)}")
    writer_id = options.get("writerid")
    wrong = None if writer_id is None else names.name_problem(writer_id)
    if wrong is not None:
        raise ConfigError(f"writerId: {wrong}")
    batch_id = _whole(options, "batchId", None, least=0)
    staging = options.get("staginglocation")
    if streaming:
        if batch_id is not None:
            raise ConfigError("batchId is for batches; a stream numbers its own")
        if staging is None and writer_id is None and "checkpointlocation" in options:
            staging = options["checkpointlocation"].rstrip("/") + "/siltlog"
        if staging is None and writer_id is None:
            raise ConfigError(
                "a stream needs a checkpointLocation, a stagingLocation or a writerId to be known again by"
            )
    elif (batch_id is None) != (writer_id is None):
        raise ConfigError("writerId and batchId go together: they name a batch so that it is written once")
    url = _url(options)
    return WriteOptions(
        topic=topics[0],
        url=url,
        credentials=_credentials(options, url),
        staging_location=None if staging is None else _location(staging),
        writer_id=writer_id,
        batch_id=batch_id,
        acks=_one_of(options, "acks", ACKS, "") or None,
        compression=cast(Literal["none", "lz4", "zstd"], _one_of(options, "compression", COMPRESSIONS, "lz4")),
    )


def _known(given: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(options.keys() - {name.lower() for name in known} - {"checkpointlocation"})
    if unknown:
        raise ConfigError(f'format("siltlog") has no option {unknown[0]!r} here; it has: {", ".join(known)}')
    return options


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    given = [options[name] for name in ("topic", "subscribe", "path") if name in options]
    if len(given) != 1:
        raise ConfigError('name what to read or write once: .load("flights"), or the option topic, or subscribe')
    topics = tuple(dict.fromkeys(name for one in given[0].split(",") if (name := one.strip())))
    if not topics:
        raise ConfigError("no topic is named")
    for topic in topics:
        wrong = names.readable_topic_problem(topic)
        if wrong is not None:
            raise ConfigError(wrong)
    return topics


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url") or default_url()
    return ",".join(Endpoints(url).urls)


def _credentials(options: Mapping[str, str], url: str) -> Credentials:
    """The options' own, else the driver's, as of any client."""
    token: Token | None = options.get("token")
    if "tokenfile" in options:
        if token is not None:
            raise ConfigError("give tokenFile or token, not both")
        token = checked_token_file(options["tokenfile"], "tokenFile")
    endpoints = Endpoints(url)
    found = chosen(endpoints, Credentials(token, options.get("ca")), found=True)
    if found.token:
        check_may_carry(endpoints.urls)
    return found


def _bound(options: Mapping[str, str], which: str, otherwise: Edge, topics: Sequence[str]) -> Bound:
    by_offset, by_time, by_times = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    said = [name for name in (by_offset, by_time, by_times) if name.lower() in options]
    if not said:
        return otherwise
    if len(said) > 1:
        raise ConfigError(f"give {said[0]} or {said[1]}, not both")
    [name] = said
    text = options[name.lower()]
    if name == by_time:
        return Moment(_time_us(name, int(text) if text.lstrip("-").isdigit() else text))
    if name == by_offset and text.lower() in ("earliest", "latest"):
        return cast(Edge, text.lower())
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.MsgspecError as error:
        words = "earliest, latest or offsets as" if name == by_offset else "milliseconds as"
        raise ConfigError(f'{name} is {words} {{"topic": {{"0": 42}}}}, not {text[:80]!r}: {error}') from None
    strange = sorted(found.keys() - set(topics))
    if strange:
        raise ConfigError(f"{name} says where to be in topic {strange[0]!r}, which is not among those that are read")
    if name == by_times:
        return Moments({topic: {at: _time_us(name, ms) for at, ms in one.items()} for topic, one in found.items()})
    least = LATEST if which == "ending" else EARLIEST
    low = [offset for one in found.values() for offset in one.values() if offset < least]
    if low:
        ends = "-1 is the latest" if which == "ending" else "-2 is the earliest, -1 the latest"
        raise ConfigError(f"{name} has the offset {low[0]}: offsets count from 0, and {ends}")
    return found


def _time_us(name: str, when: int | str) -> int:
    try:
        us = time_us(when)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if not TIME_MIN_US <= us <= TIME_MAX_US:
        raise ConfigError(f"{name}: {when} is not in the years 1 to 9999; give milliseconds or RFC 3339")
    return us


def _check_order(starting: Bound, ending: Bound) -> None:
    if not (isinstance(starting, Mapping) and isinstance(ending, Mapping)):
        return
    for topic, offsets in starting.items():
        for partition, first in offsets.items():
            last = ending.get(topic, {}).get(partition, LATEST)
            if first > last >= 0:
                raise ConfigError(
                    f"partition {partition} of topic {topic!r} is to be read from offset {first} to {last}, which is "
                    "before it"
                )


def _whole(options: Mapping[str, str], name: str, otherwise: int | None, *, least: int = 1) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= least):
        raise ConfigError(f"{name} is a whole number from {least} on, not {text[:80]!r}")
    return int(text)


def _one_of(options: Mapping[str, str], name: str, choices: tuple[str, ...], otherwise: str) -> str:
    text = options.get(name.lower(), otherwise).lower()
    if text not in choices and text != otherwise:
        raise ConfigError(f"{name} is one of {', '.join(choices)}, not {text[:80]!r}")
    return text


def _location(text: str) -> str:
    """Turns a location into the root of a store: a path of this machine into `file://`, `s3a` and `s3n` into `s3`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        path = text.removeprefix("file:")
        if not path.startswith("/"):
            raise ConfigError(f"{text!r} is no place to stage in: use /path, file:///path or s3://bucket/prefix")
        return "file://" + quote(path)
    if scheme in ("s3a", "s3n"):
        return f"s3://{rest}"
    if scheme not in ("file", "s3"):
        raise ConfigError(
            f"nothing can be staged in {text!r}: give a stagingLocation, file:///path or s3://bucket/prefix"
        )
    return text
