"""How a message is described: its fields, and the versions of its API that have them."""

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

NEVER = 2**15
"""A version that no message has."""
NO_UUID = bytes(16)


class Kind(Enum):
    BOOLEAN = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    TEXT = "text"
    BYTES = "bytes"
    RECORDS = "records"
    ARRAY = "array"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class Field:
    """A field in the versions `since` to `until`; from `nullable_since` on it may be null.

    `default` is what it has where a version lacks it; None is null, an empty tuple an empty array, and of a struct an
    empty dict the defaults of its `fields`. One with a `tag` is written only where it has another value than this.
    """

    name: str
    kind: Kind
    fields: tuple["Field", ...] = ()
    """What a struct has, or an array's elements that are structs."""
    of: Kind = Kind.STRUCT
    """What an array's elements are."""
    since: int = 0
    until: int = NEVER
    nullable_since: int = NEVER
    tag: int | None = None
    default: Any = None

    def within(self, version: int) -> bool:
        return self.since <= version <= self.until


boolean = partial(Field, kind=Kind.BOOLEAN, default=False)
int8 = partial(Field, kind=Kind.INT8, default=0)
int16 = partial(Field, kind=Kind.INT16, default=0)
int32 = partial(Field, kind=Kind.INT32, default=0)
int64 = partial(Field, kind=Kind.INT64, default=0)
uuid = partial(Field, kind=Kind.UUID, default=NO_UUID)
text = partial(Field, kind=Kind.TEXT, default="")
blob = partial(Field, kind=Kind.BYTES, default=b"")
records = partial(Field, kind=Kind.RECORDS, default=None)
struct = partial(Field, kind=Kind.STRUCT, default={})
array = partial(Field, kind=Kind.ARRAY, default=())


@dataclass(frozen=True, slots=True)
class Message:
    """The request and the response of an API, and the versions of it that there are."""

    name: str
    key: int
    min_version: int
    max_version: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]
    flexible_since: int = NEVER
    """From this version on lengths are compact and structs have tagged fields."""
