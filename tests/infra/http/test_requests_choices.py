"""What may be said is said where something else was."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from siltlog.infra.http.requests import explained


class Place(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    reset: Literal["earliest", "latest"] | None = None


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    places: list[Place] | None = None
    mode: Literal["one", "all"] = "one"


class Wait(msgspec.Struct):
    ms: Annotated[int, msgspec.Meta(ge=100, le=1_800_000)] | None = None
    times: list[Annotated[int, msgspec.Meta(ge=0)]] = []


class Give(msgspec.Struct, tag="give", tag_field="type"):
    records: int


class Stop(msgspec.Struct, tag="stop", tag_field="type"):
    pass


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (Ask, b'{"mode": "few"}', "Invalid enum value 'few' - at `$.mode`; there are: all, one"),
        (
            Ask,
            b'{"places": [{"topic": "t", "reset": "none"}]}',
            "Invalid enum value 'none' - at `$.places[0].reset`; there are: earliest, latest",
        ),
        (Ask, b'{"what": 1}', "Object contains unknown field `what`; there are: places, mode"),
        (
            Ask,
            b'{"places": [{"topic": "t", "to": 1}]}',
            "Object contains unknown field `to` - at `$.places[0]`; there are: topic, reset",
        ),
        (Give | Stop, b'{"type": "go"}', "Invalid value 'go' - at `$.type`; there are: give, stop"),
        (Wait, b'{"ms": 99}', "ms must be at least 100 and at most 1800000"),
        (Wait, b'{"ms": 1800001}', "ms must be at least 100 and at most 1800000"),
        (Wait, b'{"times": [-1]}', "times[0] must be at least 0"),
        (list[Wait], b'[{"ms": 1}]', "[0].ms must be at least 100 and at most 1800000"),
        (Ask, b'{"places": 1}', "Expected `array | null`, got `int` - at `$.places`"),
        (dict[str, Place], b'{"a": {"topic": 1}}', "Expected `str`, got `int` - at `$[...].topic`"),
    ],
    ids=[
        "enum",
        "nested-enum",
        "field",
        "nested-field",
        "tag",
        "least",
        "most",
        "of-a-list",
        "in-a-list",
        "type",
        "path-of-a-dict",
    ],
)
def test_what_may_be_said(kind: Any, body: bytes, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=kind)
    assert explained(caught.value, kind) == said
