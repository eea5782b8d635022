"""Values of a result as Python has them; a time that Python has no value for is its text."""

from typing import Any

import numpy as np
import pyarrow as pa

_INFINITE = {(1 << bits - 1) - 1: "infinity" for bits in (32, 64)}
"""How DuckDB stores a date and a time that lie after all others; those before all are the same below zero."""

_DAY_SECONDS = 86_400
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def python_values(column: pa.Array) -> list[Any]:
    """Gives each value as Arrow does; times out of Python's years 1 to 9999 in ISO 8601, `infinity` and `-infinity`,
    and the end of a day as 24:00:00."""
    if _has_times_of_day(column.type):
        # That end would be the beginning of one.
        return [_value(scalar) for scalar in column]
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]
    return values


def _has_times_of_day(kind: Any) -> bool:
    return pa.types.is_time(kind) or any(_has_times_of_day(kind.field(at).type) for at in range(kind.num_fields))


def _value(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_time(kind) and scalar.value == _DAY_SECONDS * _PER_SECOND[kind.unit]:
        return "24:00:00"
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(each) for each in scalar.values]
    if pa.types.is_union(kind):
        return _value(scalar.value)
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _time(scalar.value, kind)


def _time(number: int, kind: Any) -> str:
    if abs(number) in _INFINITE:
        return "-" * (number < 0) + _INFINITE[abs(number)]
    unit: Any = "D" if pa.types.is_date(kind) else kind.unit
    return str(np.datetime64(number, unit)) + "Z" * (getattr(kind, "tz", None) is not None)
