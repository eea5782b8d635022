"""Structs that the answers of several rooms hold. The OpenAPI document is made from them. Open: members may
be added within `/v1`."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Whole = Annotated[int, Meta(ge=0)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Problem(msgspec.Struct):
    """RFC 9457. `detail` says what is wrong and what to do next; some codes have members of their own."""

    type: Annotated[str, Meta(description="`/errors/{error_code}`")]
    title: str
    status: int
    detail: str
    error_code: str
    retryable: Annotated[
        Literal["yes", "unknown", "no"],
        Meta(
            description="`yes`: nothing happened, try again; `unknown`: it may have happened; `no`: it would not help"
        ),
    ]
    request_id: str | None
    retry_after_ms: Whole | UnsetType = UNSET


class Bounds(msgspec.Struct):
    """The offsets between which one partition has records."""

    log_start_offset: Annotated[Whole, Meta(description="The lowest offset that retention has left")]
    table_offset: Annotated[Whole, Meta(description="Everything below it is in the Delta table")]
    high_watermark: Annotated[Whole, Meta(description="Everything below it is visible to readers")]


class PartitionBounds(Bounds):
    partition: Whole
