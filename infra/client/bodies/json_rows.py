"""Rows of a table as JSON record values, and keys taken out of JSON values; column by column, not row by row."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_JSON = msgspec.json.Encoder()
_RAW = msgspec.json.Decoder(msgspec.Raw)
_TEXT = msgspec.json.Decoder(str)
_ESCAPED = r'["\\\x00-\x1f]'
_SHORT_ESCAPES = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}
_CONTROLS = {chr(code): _SHORT_ESCAPES.get(chr(code), f"\\u{code:04x}") for code in range(0x20)}
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_MISSING = msgspec.Raw()


def json_values(table: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Each row as one JSON object with the table's columns as members, in row order."""
    values: list[bytes] = []
    for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
        values += json_column(batch).to_pylist()
    return values


def json_column(batch: pa.RecordBatch) -> pa.Array:
    """Each row as one JSON object with the batch's columns as members: binary, as many as there are rows.

    Nulls stay as `null`; times are RFC 3339, bytes base64, decimals strings, and NaN is `null`.
    """
    if not batch.num_columns:
        return pa.array([b"{}"] * batch.num_rows, pa.binary())
    parts: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [("," if parts else "{") + _JSON.encode(name).decode() + ":", _member(column)]
    return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())


def text_column(column: pa.Array) -> pa.Array | None:
    """Each value as the text of a key: strings and bytes as they are, numbers, booleans and times as in JSON.

    Binary, null where the value is; None for a type that has no such text (lists, structs).
    """
    if pa.types.is_dictionary(column.type):
        texts = text_column(column.dictionary)
        return None if texts is None else texts.take(column.indices)
    if _is_text(column.type) or _is_bytes(column.type):
        return column.cast(pa.binary())
    text = _scalar_text(column)
    return None if text is None else text.cast(pa.binary())


def _member(column: pa.Array) -> pa.Array:
    """JSON text of each value."""
    if pa.types.is_dictionary(column.type):
        return _member(column.dictionary).take(column.indices).fill_null("null")
    if _is_text(column.type):
        text: pa.Array | None = _quoted(_escaped(column.cast(pa.string())))
    else:
        text = _scalar_text(column)
        if text is not None and not _is_bare(column.type):
            text = _quoted(text)
    if text is None:
        return pa.array([_JSON.encode(value).decode() for value in column.to_pylist()], pa.string())
    return text.fill_null("null")


def _scalar_text(column: pa.Array) -> pa.Array | None:
    """Writes numbers, booleans or times as text; gives None for other types."""
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float32()) if pa.types.is_float16(kind) else column
        return pc.if_else(pc.is_finite(wide), wide.cast(pa.string()), None)
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        in_utc = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(in_utc, format=f"%Y-%m-%dT%H:%M:%S{zone}")
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.date32() if pa.types.is_date(kind) else kind).cast(pa.string())
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_bare(kind: pa.DataType) -> bool:
    """Written without quotes."""
    return bool(
        pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    )


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        return text
    for plain, escape in (("\\", "\\\\"), ('"', '\\"')):
        text = pc.replace_substring(text, plain, escape)
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for plain, escape in _CONTROLS.items():
            text = pc.replace_substring(text, plain, escape)
    return text


def pointer_parts(key_from: str) -> list[str]:
    """The members that `key_from` goes through: a JSON Pointer (RFC 6901), or the bare name of a column or member."""
    if not key_from.startswith("/"):
        return [key_from]
    return [part.replace("~1", "/").replace("~0", "~") for part in key_from[1:].split("/")]


def texts_of(values: Sequence[bytes], parts: Sequence[str]) -> Iterator[str]:
    """Reads what each JSON value holds at `parts`: a string's text, a number's or boolean's JSON text as it stands.

    Raises ValueError that says why at the first value that is no JSON or has no such member.
    """
    decode = _decoder(parts)
    for value in values:
        try:
            found = decode(value)
            text = _TEXT.decode(found) if found[:1] == b'"' else found.decode()
        except msgspec.ValidationError:
            text, found = "", b""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if found[:1] in (b"", b"n", b"{", b"["):
            place = parts[0] if len(parts) == 1 else "/" + "/".join(parts)
            raise ValueError(f"there is no string, number or boolean at {place!r}")
        yield text


def _decoder(parts: Sequence[str]) -> Any:
    """Makes a decoder from a JSON value to the text at `parts`; it reads no more of the value than that."""
    if any(_INDEX.fullmatch(part) for part in parts):
        return lambda value: _walked(value, parts)
    shape: Any = msgspec.Raw
    for part in reversed(parts):
        shape = msgspec.defstruct(
            "At", [("at", shape, _MISSING if shape is msgspec.Raw else None)], rename={"at": part}
        )
    decode = msgspec.json.Decoder(shape).decode

    def found(value: bytes) -> bytes:
        at = decode(value)
        for _ in parts:
            if at is None:
                return b""
            at = at.at
        return bytes(at)

    return found


def _walked(value: bytes, parts: Sequence[str]) -> bytes:
    """The same where a part may be an index of a list, or the name of a member that looks like one."""
    found: msgspec.Raw = _RAW.decode(value)
    for part in parts:
        within = msgspec.json.decode(found, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        if isinstance(within, dict):
            found = within.get(part, _MISSING)
        else:
            index = int(part) if _INDEX.fullmatch(part) and len(part) < 10 else len(within)
            found = within[index] if index < len(within) else _MISSING
        if not bytes(found):
            return b""
    return bytes(found)
