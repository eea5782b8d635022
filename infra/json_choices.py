"""What a JSON body may say where it says something wrong, from the type it is read as."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_PATH = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[")


def explained(error: msgspec.ValidationError, kind: Any) -> str:
    """The error with the values that are allowed there, or the fields that there are."""
    text = str(error)
    found = _PATH.search(text)
    path = found[1] if found else ""
    if text.startswith("Invalid enum value "):
        told = list(_values(_at(kind, path)))
    elif text.startswith("Invalid value "):
        parent, _, field = path.rpartition(".")
        told = [str(one.tag) for one in _structs(_at(kind, parent)) if one.tag_field == field]
    elif text.startswith("Object contains unknown field "):
        told = [field.encode_name for one in _structs(_at(kind, path)) for field in one.fields]
    else:
        told = []
    return f"{text}; there are: {', '.join(told)}" if told else text


def _at(kind: Any, path: str) -> inspect.Type | None:
    """The type at a path such as `.partitions[0].topic`; None where it is not one alone."""
    found: inspect.Type | None = inspect.type_info(kind)
    for step in _STEP.finditer(path):
        if step[1] is None:
            found = next((one.item_type for one in _one_of(found) if isinstance(one, inspect.ListType)), None)
        else:
            fields = (field for one in _structs(found) for field in one.fields)
            found = next((field.type for field in fields if field.encode_name == step[1]), None)
    return found


def _one_of(kind: inspect.Type | None) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.UnionType):
        return kind.types
    return () if kind is None else (kind,)


def _structs(kind: inspect.Type | None) -> Iterator[inspect.StructType]:
    return (one for one in _one_of(kind) if isinstance(one, inspect.StructType))


def _values(kind: inspect.Type | None) -> Iterator[str]:
    for one in _one_of(kind):
        if isinstance(one, inspect.LiteralType):
            yield from map(str, one.values)
