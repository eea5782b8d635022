"""Turns the description of a message in one version into closures that read and write its bytes."""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any

from siltlog.infra.kafka.messages.schema import Field, Kind
from siltlog.infra.kafka.wire import (
    Budget,
    Frame,
    Malformed,
    Out,
    Reader,
    ReadLength,
    WriteLength,
    Writer,
    array_reader,
    array_writer,
    bytes_reader,
    bytes_writer,
    read_compact_length,
    read_length16,
    read_length32,
    read_uvarint,
    text_of,
    text_writer,
    untouched,
    uvarint,
    write_compact_length,
    write_length16,
    write_length32,
    write_uuid,
)

_FIXED = frozenset((Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64))
_FIXED_READ = _FIXED | {Kind.UUID}
ReadStep = Callable[[dict[str, Any], Frame, int, Budget], int]
Step = tuple[str, ReadStep]
"""The name of a field, and what reads it, or a run of fields that begins with it, into a struct."""
WriteStep = tuple[str, Callable[[Mapping[str, Any], Out], None]]


def struct_reader(fields: tuple[Field, ...], version: int, flexible: bool) -> Reader:
    """Reads a struct of `fields` as a dict of all of them. Raises Malformed."""
    template = {field.name: _default(field) for field in fields}
    fresh = [field.name for field in fields if isinstance(template[field.name], list | dict)]
    of_fresh = {field.name: field for field in fields}
    own = [field for field in fields if field.within(version)]
    absent = [name for name in fresh if not of_fresh[name].within(version) or of_fresh[name].tag is not None]
    steps = _steps([field for field in own if field.tag is None], version, flexible)
    if flexible:
        steps.append(("tagged fields", _tagged_step([field for field in own if field.tag is not None], version)))

    def read(frame: Frame, at: int, budget: Budget) -> tuple[dict[str, Any], int]:
        value = template.copy()
        for name in absent:
            value[name] = _default(of_fresh[name])
        field = ""
        try:
            for name, step in steps:
                field = name
                at = step(value, frame, at, budget)
        except Malformed as error:
            raise error.within(field) from None
        except (struct.error, IndexError):
            raise Malformed("the bytes end within it", field) from None
        return value, at

    return read


def struct_writer(fields: tuple[Field, ...], version: int, flexible: bool) -> Writer:
    """Writes a mapping as a struct of `fields`. Raises ValueError."""
    own = [field for field in fields if field.within(version)]
    names = frozenset(field.name for field in fields)
    steps = _write_steps([field for field in own if field.tag is None], version, flexible)
    if flexible:
        tagged = sorted((field for field in own if field.tag is not None), key=lambda field: field.tag or 0)
        steps.append(("tagged fields", _tagged_write_step(tagged, version)))

    def write(value: Mapping[str, Any], out: Out) -> None:
        field = ""
        try:
            if not names.issuperset(value):
                raise ValueError(f"it has no {', '.join(sorted(set(value) - names))}")
            for name, step in steps:
                field = name
                step(value, out)
        except (struct.error, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"{field}: {error}" if field else str(error)) from error

    return write


def _default(field: Field) -> Any:
    """The value of a field that is not there; a new one each time where it could be changed."""
    if field.kind is Kind.ARRAY:
        return None if field.default is None else []
    if field.kind is Kind.STRUCT:
        return None if field.default is None else {each.name: _default(each) for each in field.fields}
    return field.default


def _runs(fields: list[Field], fixed: frozenset[Kind]) -> Iterable[tuple[bool, list[Field]]]:
    for is_fixed, run in groupby(fields, lambda field: field.kind in fixed):
        yield is_fixed, list(run)


def _steps(fields: list[Field], version: int, flexible: bool) -> list[Step]:
    steps: list[Step] = []
    for is_fixed, run in _runs(fields, _FIXED_READ):
        if is_fixed:
            steps.append((run[0].name, _fixed_step(run)))
        else:
            steps += [(field.name, _step(field.name, _reader(field, version, flexible))) for field in run]
    return steps


def _fixed_step(run: list[Field]) -> ReadStep:
    """Reads neighbouring fields of fixed width at once."""
    layout = Struct(">" + "".join(field.kind.value for field in run))
    names, unpack, size = [field.name for field in run], layout.unpack_from, layout.size
    if len(names) == 1:
        name = names[0]

        def one(value: dict[str, Any], frame: Frame, at: int, _: Budget) -> int:
            (value[name],) = unpack(frame, at)
            return at + size

        return one

    def several(value: dict[str, Any], frame: Frame, at: int, _: Budget) -> int:
        value.update(zip(names, unpack(frame, at), strict=True))
        return at + size

    return several


def _step(name: str, read: Reader) -> ReadStep:
    def step(value: dict[str, Any], frame: Frame, at: int, budget: Budget) -> int:
        value[name], at = read(frame, at, budget)
        return at

    return step


def _tagged_step(fields: list[Field], version: int) -> ReadStep:
    """Reads the tagged fields of a struct; those that are not known are passed over, as the protocol wants it."""
    known = {field.tag: (field.name, _reader(field, version, True)) for field in fields}

    def step(value: dict[str, Any], frame: Frame, at: int, budget: Budget) -> int:
        count, at = read_uvarint(frame, at)
        for _ in range(count):
            tag, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            end = at + size
            if end > len(frame):
                raise Malformed(f"the field of tag {tag} has {size} bytes, and {len(frame) - at} are left")
            if tag in known:
                name, read = known[tag]
                value[name], used = _whole(name, read, frame[at:end], budget)
                if used != size:
                    raise Malformed(f"it has {size - used} bytes too many", name)
            at = end
        return at

    return step


def _whole(name: str, read: Reader, frame: Frame, budget: Budget) -> tuple[Any, int]:
    try:
        return read(frame, 0, budget)
    except Malformed as error:
        raise error.within(name) from None
    except (struct.error, IndexError):
        raise Malformed("its bytes end within it", name) from None


def _lengths(kind: Kind, flexible: bool) -> tuple[ReadLength, WriteLength]:
    if flexible:
        return read_compact_length, write_compact_length
    return (read_length16, write_length16) if kind is Kind.TEXT else (read_length32, write_length32)


def _reader(field: Field, version: int, flexible: bool) -> Reader:
    nullable = version >= field.nullable_since
    read_length, _ = _lengths(field.kind, flexible)
    match field.kind:
        case Kind.TEXT:
            return bytes_reader(read_length, nullable, text_of)
        case Kind.BYTES:
            return bytes_reader(read_length, nullable, bytes)
        case Kind.RECORDS:
            return bytes_reader(read_length, nullable, untouched)
        case Kind.STRUCT:
            read = struct_reader(field.fields, version, flexible)
            return _nullable_struct_reader(read) if nullable else read
        case Kind.ARRAY:
            element = _element(field)
            size = _bytes_min(element, version, flexible)
            return array_reader(read_length, nullable, _reader(element, version, flexible), size)
    layout = Struct(">" + field.kind.value)

    def fixed(frame: Frame, at: int, _: Budget) -> tuple[Any, int]:
        return layout.unpack_from(frame, at)[0], at + layout.size

    return fixed


def _nullable_struct_reader(read: Reader) -> Reader:
    def nullable(frame: Frame, at: int, budget: Budget) -> tuple[Any, int]:
        if frame[at] >= 0x80:
            return None, at + 1
        return read(frame, at + 1, budget)

    return nullable


def _element(field: Field) -> Field:
    """What an array has many of, as a field."""
    return Field("", field.of, fields=field.fields)


def _bytes_min(field: Field, version: int, flexible: bool) -> int:
    """The bytes that a field takes at least; an element of an array takes one at least in every message."""
    match field.kind:
        case Kind.TEXT:
            return 1 if flexible else 2
        case Kind.BYTES | Kind.RECORDS | Kind.ARRAY:
            return 1 if flexible else 4
        case Kind.STRUCT:
            if version >= field.nullable_since:
                return 1
            own = [each for each in field.fields if each.within(version) and each.tag is None]
            return sum(_bytes_min(each, version, flexible) for each in own) + flexible
    return Struct(">" + field.kind.value).size


def _write_steps(fields: list[Field], version: int, flexible: bool) -> list[WriteStep]:
    steps: list[WriteStep] = []
    for is_fixed, run in _runs(fields, _FIXED):
        if is_fixed:
            steps.append((", ".join(field.name for field in run), _fixed_write_step(run)))
        else:
            steps += [(field.name, _write_step(field, _writer(field, version, flexible))) for field in run]
    return steps


def _fixed_write_step(run: list[Field]) -> Callable[[Mapping[str, Any], Out], None]:
    pack = Struct(">" + "".join(field.kind.value for field in run)).pack
    defaults = {field.name: field.default for field in run}
    names = list(defaults)
    if len(names) == 1:
        ((name, default),) = defaults.items()
        return lambda value, out: out(pack(value.get(name, default)))
    values_of = itemgetter(*names)

    def several(value: Mapping[str, Any], out: Out) -> None:
        try:
            values = values_of(value)
        except KeyError:
            values = values_of({**defaults, **value})
        out(pack(*values))

    return several


def _write_step(field: Field, write: Writer) -> Callable[[Mapping[str, Any], Out], None]:
    name, default = field.name, _default(field)
    return lambda value, out: write(value.get(name, default), out)


def _tagged_write_step(fields: list[Field], version: int) -> Callable[[Mapping[str, Any], Out], None]:
    """Writes the tagged fields that do not have their defaults, by rising tags."""
    known = []
    for field in fields:
        write = _writer(field, version, True)
        known.append((field.tag or 0, field.name, write, _written(write, _default(field))))

    def step(value: Mapping[str, Any], out: Out) -> None:
        present = []
        for tag, name, write, default in known:
            if name in value and (data := _written(write, value[name])) != default:
                present.append(uvarint(tag) + uvarint(len(data)) + data)
        out(uvarint(len(present)) + b"".join(present))

    return step


def _written(write: Writer, value: Any) -> bytes:
    pieces: list[Any] = []
    write(value, pieces.append)
    return b"".join(pieces)


def _writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = version >= field.nullable_since
    _, write_length = _lengths(field.kind, flexible)
    match field.kind:
        case Kind.TEXT:
            return text_writer(write_length, nullable)
        case Kind.BYTES | Kind.RECORDS:
            return bytes_writer(write_length, nullable)
        case Kind.UUID:
            return write_uuid
        case Kind.STRUCT:
            write = struct_writer(field.fields, version, flexible)
            return _nullable_struct_writer(write) if nullable else write
        case Kind.ARRAY:
            return array_writer(write_length, nullable, _writer(_element(field), version, flexible))
    pack = Struct(">" + field.kind.value).pack
    return lambda value, out: out(pack(value))


def _nullable_struct_writer(write: Writer) -> Writer:
    def nullable(value: Mapping[str, Any] | None, out: Out) -> None:
        if value is None:
            out(b"\xff")
            return
        out(b"\x01")
        write(value, out)

    return nullable
