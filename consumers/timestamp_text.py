"""Times as text, a column at a time: RFC 3339 in UTC with six decimals, as `infra.clock.format_us` writes one."""

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MICROS = 1_000_000
_DAY_SECONDS = 86_400
_WIDTH = len("2026-11-21T07:36:00.123456Z")
_DAYS_MAX = 40_000
"""Spans of more days than these are formatted by Arrow: the table of their dates would be larger than it is worth."""

_FOUR_DIGIT_YEARS_US = (-62_135_596_800 * _MICROS, 253_402_300_800 * _MICROS)
_Bytes = npt.NDArray[np.uint8]


def timestamp_texts(timestamps: pa.Array) -> pa.Array:
    """`2026-11-21T07:36:00.123456Z` of each of a column of UTC microseconds (none null), as strings; length n."""
    count = len(timestamps)
    if count == 0:
        return pa.array([], pa.string())
    micros = timestamps.cast(pa.int64()).to_numpy()
    lowest, highest = int(micros.min()), int(micros.max())
    first_day = lowest // _MICROS // _DAY_SECONDS
    last_day = highest // _MICROS // _DAY_SECONDS
    years_fit = _FOUR_DIGIT_YEARS_US[0] <= lowest and highest < _FOUR_DIGIT_YEARS_US[1]
    if not years_fit or last_day - first_day > _DAYS_MAX:
        texts = pc.cast(timestamps, pa.string())
        return pc.replace_substring(texts, " ", "T", max_replacements=1)
    seconds, fraction = np.divmod(micros, _MICROS)
    days, second_of_day = np.divmod(seconds, _DAY_SECONDS)
    dates = np.datetime_as_string(np.arange(first_day, last_day + 1).astype("datetime64[D]"))
    text = np.empty((count, _WIDTH), np.uint8)
    text[:, 0:10] = _rows(dates, 10)[days - first_day]
    text[:, 10] = ord("T")
    text[:, 11:19] = _times_of_day()[second_of_day]
    text[:, 19] = ord(".")
    text[:, 20:23] = _thousands()[fraction // 1000]
    text[:, 23:26] = _thousands()[fraction % 1000]
    text[:, 26] = ord("Z")
    offsets = np.arange(0, (count + 1) * _WIDTH, _WIDTH, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _rows(texts: npt.NDArray[np.str_], width: int) -> _Bytes:
    """ASCII texts of one width as a matrix of bytes; shape (n, width)."""
    return np.frombuffer(texts.astype(f"S{width}").tobytes(), np.uint8).reshape(-1, width)


@cache
def _times_of_day() -> _Bytes:
    return _rows(np.array([f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(_DAY_SECONDS)]), 8)


@cache
def _thousands() -> _Bytes:
    return _rows(np.array([f"{n:03d}" for n in range(1000)]), 3)
