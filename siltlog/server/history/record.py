"""The records of `_metrics`: what a node measured in a minute, or in an hour."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND, format_us, parse_us
from siltlog.server.history.kept import KEPT
from siltlog.server.history.sampling import Sample, Series
from siltlog.server.history.series_rings import HOUR_SECONDS, MINUTE_SECONDS, counts_highest

T = TypeVar("T")

_NAMES = frozenset(kept.metric.name for kept in KEPT)


class Columns(msgspec.Struct):
    """Series that one label tells apart: each name has a value for each of `of`, null where nothing was measured. So
    the names of topics, which are most of it, are there once."""

    of: list[str]
    series: dict[str, list[float | None]]


class Measured(msgspec.Struct):
    """`node` has the series without a label, by their names; `by` the others, by their label."""

    node: dict[str, float]
    by: dict[str, Columns] = {}


class MinuteRecord(msgspec.Struct):
    """The value of a record of partition 0; its key is the node. Open: records outlive versions."""

    time: str
    """When the minute begins."""
    step_ms: int
    values: Measured
    """Counters as their rise a second."""


class HourRecord(msgspec.Struct):
    """The value of a record of partition 1."""

    time: str
    step_ms: int
    mean: Measured
    """The highest of the hour's minutes, as `max`."""
    max: Measured


_minute_decoder = msgspec.json.Decoder(MinuteRecord)
_hour_decoder = msgspec.json.Decoder(HourRecord)


def minute_value(minute: int, sample: Sample) -> bytes:
    return msgspec.json.encode(MinuteRecord(_time(minute * MINUTE_SECONDS), MINUTE_SECONDS * 1000, measured(sample)))


def hour_value(hour: int, means: Sample, highest: Sample) -> bytes:
    time, step_ms = _time(hour * HOUR_SECONDS), HOUR_SECONDS * 1000
    return msgspec.json.encode(HourRecord(time, step_ms, measured(means), measured(highest)))


def minute_of(value: bytes) -> tuple[int, MinuteRecord]:
    """Raises ValueError for what is no such record."""
    record = _decoded(_minute_decoder, value)
    return parse_us(record.time) // (MINUTE_SECONDS * MICROS_PER_SECOND), record


def hour_of(value: bytes) -> tuple[int, HourRecord]:
    """Raises ValueError for what is no such record."""
    record = _decoded(_hour_decoder, value)
    return parse_us(record.time) // (HOUR_SECONDS * MICROS_PER_SECOND), record


def _decoded(decoder: msgspec.json.Decoder[T], value: bytes) -> T:
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def measured(sample: Sample) -> Measured:
    """Six digits of each value: a float of 32 bits has seven."""
    node: dict[str, float] = {}
    labels: dict[str, dict[str, dict[str, float]]] = {}
    for series, value in sample.items():
        rounded = float(f"{value:.6g}")
        if series.label:
            labels.setdefault(series.label, {}).setdefault(series.name, {})[series.value] = rounded
        else:
            node[series.name] = rounded
    return Measured(node, {label: _columns(by_name) for label, by_name in labels.items()})


def _columns(by_name: Mapping[str, Mapping[str, float]]) -> Columns:
    of = sorted({value for values in by_name.values() for value in values})
    return Columns(of, {name: [values.get(each) for each in of] for name, values in by_name.items()})


class Column(NamedTuple):
    """Values of some series, which are the same in all records with the same `key`."""

    key: Hashable
    series: Callable[[], list[Series]]
    values: Sequence[float | None]


def columns_of(told: Measured, *, highest: bool | None = None) -> Iterator[Column]:
    """The series that this version knows; with `highest` those that count by the highest, or the others."""

    def wanted(name: str, label: str) -> bool:
        return name in _NAMES and highest in (None, counts_highest(name, label))

    node = {name: value for name, value in told.node.items() if wanted(name, "")}
    if node:
        yield Column(tuple(node), lambda: [Series(name) for name in node], list(node.values()))
    for label, columns in told.by.items():
        of = tuple(columns.of)
        for name, values in columns.series.items():
            if wanted(name, label) and len(values) == len(of):
                yield Column((name, label, of), partial(_series_of, name, label, of), values)


def _series_of(name: str, label: str, of: Sequence[str]) -> list[Series]:
    return [Series(name, label, each) for each in of]


def _time(seconds: int) -> str:
    return format_us(seconds * MICROS_PER_SECOND)
