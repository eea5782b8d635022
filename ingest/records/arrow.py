"""A publish as an Arrow IPC stream: from whatever Arrow types it has to the columns of a record.

What arrives is bytes of a stranger: every buffer is validated before it is looked at, and nothing is decoded before
its size is known, because dictionaries, views and compression make much of little.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX
from siltlog.ingest.records.arrow_messages import BrokenMessage, inflated_bytes
from siltlog.ingest.records.body import RECORDS_MAX, Body, too_many_records

_IGNORED = frozenset(("topic", "offset"))
_COLUMNS = frozenset(("key", "value", "headers", "timestamp", "partition", "sequence"))
_WANTED = {
    **dict.fromkeys(("key", "value", "topic"), "binary or string"),
    "headers": "a list of structs of key and value",
    "timestamp": "a timestamp or integer milliseconds",
    **dict.fromkeys(("partition", "sequence", "offset"), "an integer"),
}
_STRINGS = (pa.string(), pa.large_string())
_BYTES = (*_STRINGS, pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
_NO_ARRAYS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
"""Types of which pyarrow reads batches, and makes no array: it fails where a column is looked at."""
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
BATCH_BYTES = 1024
"""About what a batch takes while it is read, beside its buffers."""
_QUOTED_CHARS_MAX = 300
_OFFSET_BYTES = 4
_VIEW_INTS = 4
"""A view has 16 bytes; the first four are its length."""


def parse_arrow(body: bytes, bytes_max: int) -> Body:
    """An Arrow IPC stream with the columns of a record; only `value` is required.

    Raises Refused: `malformed_body` names the byte where the message begins, what is wrong in a record its index.
    """
    batch = _read(body, bytes_max)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    key, room = _binary(columns.get("key"), "key", bytes_max)
    value, _ = _binary(columns["value"], "value", room)
    if value is None and key is not None:
        value = pa.nulls(batch.num_rows, pa.binary())
    _check_tombstones(value, key)
    headers = _headers(columns.get("headers"))
    timestamp = _timestamps(columns.get("timestamp"))
    own = [column.nbytes for column in (key, value, headers, timestamp) if column is not None]
    if sum(own) > bytes_max:
        raise _too_large(bytes_max)
    return Body(
        batch.num_rows,
        sum(own),
        timestamp=timestamp,
        key=key,
        value=value,
        headers=headers,
        partition=_integers(columns.get("partition"), "partition", np.int32, PARTITION_MAX),
        sequence=_integers(columns.get("sequence"), "sequence", np.int64, INTEGER_MAX),
        positions=False,
    )


def _read(body: bytes, bytes_max: int) -> pa.RecordBatch:
    """All batches of the stream as one, validated."""
    source = pa.BufferReader(body)
    at = 0
    batches, nbytes, rows = [], 0, 0
    try:
        with pa.ipc.open_stream(source) as reader:
            _check_schema(reader.schema)
            if inflated_bytes(body) > bytes_max:
                raise _too_large(bytes_max)
            while True:
                at = source.tell()
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                # A column may take no bytes at all, so rows count too.
                rows += batch.num_rows
                if rows > RECORDS_MAX:
                    raise too_many_records()
                batch.validate(full=True)
                # With every dictionary, which each batch that has it is validated with.
                nbytes += batch.nbytes + BATCH_BYTES
                if nbytes > bytes_max:
                    raise _too_large(bytes_max)
                batches.append(batch)
        if source.tell() < len(body):
            raise problem(
                "malformed_body",
                f"the Arrow stream ends at byte {source.tell()}, and more follows; send one stream",
                byte=source.tell(),
            )
        if rows == 0:
            raise problem("invalid_request", "the Arrow body has no records; send at least one")
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    except BrokenMessage as error:
        raise _malformed(error.at, error) from None
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise _malformed(at, error) from None


def _malformed(at: int, error: Exception) -> SiltlogError:
    what = str(error)[:_QUOTED_CHARS_MAX]
    return problem(
        "malformed_body",
        f"the body is not a valid Arrow IPC stream, in the message that begins at byte {at}: {what}",
        byte=at,
    )


def _check_schema(schema: pa.Schema) -> None:
    """Before any batch is read: nothing of a type that no record has is ever decoded."""
    try:
        names = schema.names
    except UnicodeDecodeError:
        raise problem("malformed_body", "the Arrow schema has a name that is not UTF-8", byte=0) from None
    unknown = [name for name in names if name not in _COLUMNS and name not in _IGNORED]
    if unknown or len(set(names)) < len(names) or "value" not in names:
        raise problem(
            "invalid_request",
            f"an Arrow body has the column value and may have {', '.join(sorted(_COLUMNS - {'value'}))}, each once; "
            f"this one has {', '.join(names)[:_QUOTED_CHARS_MAX] or 'none'}",
        )
    for name, type_ in zip(names, schema.types, strict=True):
        if not _is_flat(type_) and not (name == "headers" and _is_headers(type_)):
            raise _wrong_type(name, type_)


def _is_flat(type_: pa.DataType) -> bool:
    """One value per row; which one a column may have is seen once there is more than nulls in it."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if type_.id in _NO_ARRAYS:
        return False
    return bool(pa.types.is_primitive(type_) or pa.types.is_null(type_)) or _is_bytes(type_)


def _wrong_type(name: str, type_: pa.DataType) -> SiltlogError:
    return problem(
        "invalid_request", f"the column {name} must be {_WANTED[name]}, not {str(type_)[:_QUOTED_CHARS_MAX]}"
    )


def _binary(column: Any, name: str, bytes_max: int) -> tuple[pa.Array | None, int]:
    """The column as binary, and what is left of `bytes_max`; None when it is absent or has no type but null."""
    if column is None or pa.types.is_null(column.type):
        return None, bytes_max
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if column.type == pa.binary():
        return column, bytes_max - column.nbytes
    if not pa.types.is_dictionary(column.type):
        return _plain(column, name, bytes_max)
    entries, _ = _plain(column.dictionary, name, bytes_max)
    left = bytes_max - _decoded_bytes(entries, column.indices)
    if left < 0:
        raise _too_large(bytes_max)
    return entries.take(column.indices), left


def _plain(column: Any, name: str, bytes_max: int) -> tuple[pa.Array, int]:
    """Gives the column as binary, and the bytes that are left; many views may share the same bytes."""
    if not _is_bytes(column.type):
        raise _wrong_type(name, column.type)
    left = bytes_max - int(_lengths(column).sum()) - _OFFSET_BYTES * (len(column) + 1)
    if left < 0:
        raise _too_large(bytes_max)
    if _is_view(column.type) and column.null_count:
        column = _without_null_views(column)
    return column.cast(pa.binary()), left


def _is_bytes(type_: pa.DataType) -> bool:
    return type_ in _BYTES or bool(pa.types.is_fixed_size_binary(type_))


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary_view(type_) or pa.types.is_string_view(type_))


def _without_null_views(column: Any) -> Any:
    """The same with nothing in the views of nulls: they may say anything, no validation looks at them, and Arrow's
    cast reads them all the same (pyarrow 26 ends the process)."""
    _, views, *data = column.buffers()
    valid = column.is_valid()
    own = np.frombuffer(views, np.int32, (column.offset + len(column)) * _VIEW_INTS).reshape(-1, _VIEW_INTS)
    own = np.where(valid.to_numpy(zero_copy_only=False)[:, None], own[column.offset :], np.int32(0))
    bitmap = pa.array(valid.to_numpy(zero_copy_only=False)).buffers()[1]
    return pa.Array.from_buffers(column.type, len(column), [bitmap, pa.py_buffer(own.tobytes()), *data])


def _decoded_bytes(entries: pa.Array, codes: Any) -> int:
    """The bytes that the rows of a dictionary take as plain binary; many may have the same entry."""
    lengths = _lengths(entries)
    total = int(lengths[codes.drop_null().to_numpy(zero_copy_only=False)].sum()) if len(lengths) else 0
    return total + _OFFSET_BYTES * (len(codes) + 1)


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    if pa.types.is_fixed_size_binary(column.type):
        return np.full(len(column), column.type.byte_width, np.int64)
    if _is_view(column.type):
        if not len(column):
            return np.zeros(0, np.int64)
        first = column.offset * _VIEW_INTS
        # The buffer may have more, and end in the middle of a number.
        ints = np.frombuffer(column.buffers()[1], np.int32, first + len(column) * _VIEW_INTS)
        lengths = ints[first::_VIEW_INTS].astype(np.int64)
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    counted: Any = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(counted, np.int64)


def _check_tombstones(value: pa.Array | None, key: pa.Array | None) -> None:
    """`value` is None where every record is a tombstone."""
    if value is None:
        index = 0
    elif not value.null_count:
        return
    else:
        nulls = value.is_null() if key is None else pc.and_(value.is_null(), key.is_null())
        index = pc.index(nulls, True).as_py()
    if index >= 0:
        raise problem("invalid_record", f"record {index}: a null value is a tombstone and needs a key", index=index)


def _timestamps(column: Any) -> pa.Array | None:
    """Microseconds in UTC of a timestamp column (without a time zone: UTC) or of integer milliseconds."""
    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_integer(column.type):
        unit = "ms"
    elif pa.types.is_timestamp(column.type):
        unit = column.type.unit
    else:
        raise _wrong_type("timestamp", column.type)
    if unit == "ns":
        return column.cast(TIMESTAMP, safe=False)
    numbers = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else _int64(column)
    index = _outside(numbers, TIME_MIN_US // _UNIT_US[unit], TIME_MAX_US // _UNIT_US[unit])
    if index >= 0:
        looks = "; it looks like microseconds: send milliseconds" if pa.types.is_integer(column.type) else ""
        raise problem(
            "invalid_record", f"record {index}: its timestamp is beyond the years 1 to 9999{looks}", index=index
        )
    return numbers.view(TIMESTAMP) if unit == "us" else numbers.view(pa.timestamp(unit, tz="UTC")).cast(TIMESTAMP)


def _headers(column: Any) -> pa.Array | None:
    """HEADERS; a record without any has null."""
    if column is None or column.null_count == len(column):
        return None
    if not _is_headers(column.type):
        raise _wrong_type("headers", column.type)
    column = column.cast(HEADERS)
    # Anew from what the lists hold: children may have more, between the lists and below the null ones.
    flat = pc.list_flatten(column)
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    keyless = pc.index(pc.or_kleene(flat.is_null(), pc.struct_field(flat, "key").is_null()), True).as_py()
    if keyless >= 0:
        index = int(np.searchsorted(ends, keyless, "right")) - 1
        raise problem("invalid_record", f"record {index} has a header without a key", index=index)
    return pa.ListArray.from_arrays(pa.array(ends), flat, type=HEADERS, mask=pa.array(counts == 0))


def _is_headers(type_: pa.DataType) -> bool:
    if not pa.types.is_list(type_) and not pa.types.is_large_list(type_):
        return False
    item = type_.value_type
    if not pa.types.is_struct(item) or sorted(field.name for field in item) != ["key", "value"]:
        return False
    key, value = item.field("key").type, item.field("value").type
    return key in _STRINGS and value in (*_STRINGS, pa.binary(), pa.large_binary(), pa.null())


def _integers(column: Any, name: str, dtype: type, maximum: int) -> Any:
    """Gives the column as numbers of `dtype`, -1 where a record has none; None when no record has one."""
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_integer(column.type):
        raise _wrong_type(name, column.type)
    if name == "sequence" and column.null_count:
        index = pc.index(column.is_null(), True).as_py()
        raise problem("invalid_record", f"record {index} has no sequence, but others have", index=index)
    numbers = _int64(column) if column.null_count else column
    index = _outside(numbers, 0, maximum)
    if index >= 0:
        raise problem("invalid_record", f"record {index}: {name} must be from 0 to {maximum}", index=index)
    return (numbers.fill_null(-1) if numbers.null_count else numbers).to_numpy().astype(dtype, copy=False)


def _outside(numbers: pa.Array, first: int, last: int) -> int:
    """The index of the first number outside [first, last]; -1 when there is none, and nulls are none."""
    # With numpy: Arrow's functions cost more than all the rest of a small body.
    values = (numbers.fill_null(first) if numbers.null_count else numbers).to_numpy()
    if values.min() >= first and values.max() <= last:
        return -1
    return int(np.argmax((values < first) | (values > last)))


def _int64(column: pa.Array) -> pa.Array:
    """Numbers beyond the type's end become its end: they are refused either way."""
    if column.type == pa.uint64():
        column = pc.min_element_wise(column, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _too_large(bytes_max: int) -> SiltlogError:
    return problem(
        "request_too_large",
        f"the inflated body is above the limit of {bytes_max} bytes; send smaller batches",
        limit=bytes_max,
    )
