from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.audit.chain import (
    Anchor,
    Audited,
    Finding,
    Verifier,
    opened,
    read_anchor,
    sealed,
    start_of,
    told,
)

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
lengths = st.integers(2, 8)


def chained(count: int, chain: str = "c", key: bytes = KEY) -> tuple[list[bytes], Anchor]:
    last, values = start_of(chain), []
    for number in range(count):
        audited = Audited(
            request_id=f"r{number}", principal="key:ops", operation="deleteTopic", resource="topic/a", outcome="begun"
        )
        value, last = sealed(audited, last, time="2026-11-22T19:00:00.000000Z", node="node-0", key=key)
        values.append(value)
    return values, last


def found(values: Sequence[bytes | None], *anchors: Anchor, from_start: bool = True) -> list[Finding]:
    verifier = Verifier(KEY, anchors, from_start=from_start)
    findings = [finding for offset, value in enumerate(values) for finding in verifier.see(offset, value)]
    return findings + list(verifier.end())


def faults(values: Sequence[bytes | None], *anchors: Anchor, from_start: bool = True) -> list[tuple[str, int | None]]:
    return [(finding.fault, finding.offset) for finding in found(values, *anchors, from_start=from_start)]


@given(lengths)
def test_what_nobody_touched_is_right(count: int) -> None:
    values, last = chained(count)
    assert faults(values, last) == []
    assert faults(values[1:], last, from_start=False) == [], "what retention removed is not missed"
    assert opened(values[-1], KEY).anchor() == last


@pytest.mark.rule("A1")
@given(lengths, st.data())
def test_an_edit_of_any_byte_is_found_where_it_is(count: int, data: st.DataObject) -> None:
    values, last = chained(count)
    at = data.draw(st.integers(0, count - 1))
    position = data.draw(st.integers(0, len(values[at]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda other: other != values[at][position]))
    values[at] = values[at][:position] + bytes([byte]) + values[at][position + 1 :]
    told = faults(values, last)
    assert told[0][1] == at
    assert told[0][0] in ("edited", "unreadable")


@pytest.mark.rule("A1")
@given(lengths, st.data())
def test_an_edit_that_another_key_sealed_is_found(count: int, data: st.DataObject) -> None:
    """Somebody who knows how it is written, and not the key, writes the record anew."""
    values, last = chained(count)
    at = data.draw(st.integers(0, count - 1))
    read = opened(values[at], KEY)
    before = Anchor("c", read.record.seq - 1, read.record.previous)
    audited = Audited(request_id="r", principal="key:other", operation="deleteTopic", outcome="done")
    values[at], _ = sealed(audited, before, time=read.record.time, node="node-0", key=OTHER_KEY)
    assert faults(values, last) == [("edited", at)]


@pytest.mark.rule("A1")
@given(lengths, st.data())
def test_a_removal_is_found(count: int, data: st.DataObject) -> None:
    values, last = chained(count)
    first = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(first + 1, count))
    del values[first:end]
    told = found(values, last)
    if first == len(values):
        assert [(finding.fault, finding.offset) for finding in told] == [("cut", None)]
    else:
        assert [(finding.fault, finding.offset) for finding in told] == [("missing", first)]
    assert f"record {first + 1}" in told[0].text


@pytest.mark.rule("A1")
@given(lengths, st.data())
def test_a_reorder_is_found(count: int, data: st.DataObject) -> None:
    values, last = chained(count)
    order = data.draw(st.permutations(range(count)).filter(lambda order: list(order) != list(range(count))))
    told = faults([values[at] for at in order], last)
    assert "out_of_order" in {fault for fault, _ in told}
    assert told[0][1] == next(place for place, at in enumerate(order) if place != at)


@pytest.mark.rule("A1")
@given(lengths, st.data())
def test_a_duplicate_is_found(count: int, data: st.DataObject) -> None:
    values, last = chained(count)
    at = data.draw(st.integers(0, count - 1))
    place = data.draw(st.integers(at + 1, count))
    values.insert(place, values[at])
    assert faults(values, last) == [("duplicate" if place == at + 1 else "out_of_order", place)]


@pytest.mark.rule("A1")
def test_an_end_that_was_cut_off_shows_by_an_anchor_alone() -> None:
    values, last = chained(5)
    assert faults(values[:3]) == []
    [finding] = found(values[:3], last)
    assert finding.fault == "cut"
    assert "record 4 to 5" in finding.text
    assert faults([], last) == [("cut", None)]


def test_a_chain_that_goes_on_from_one_place_twice_is_found() -> None:
    """A data directory was copied, and both copies wrote."""
    values, last = chained(3)
    audited = Audited(request_id="x", principal="key:ops", operation="putTopic", outcome="done")
    other, _ = sealed(audited, opened(values[1], KEY).anchor(), time="2026", node="node-0", key=KEY)
    after, _ = sealed(audited, last, time="2026", node="node-0", key=KEY)
    assert faults([*values, other]) == [("out_of_order", 3)]
    assert faults([*values[:2], other, after]) == [("forked", 3)]
    assert faults([*values[:2], other], last) == [("forked", 2)]


def test_chains_of_several_nodes_are_told_apart() -> None:
    (ones, one), (others, other) = chained(3, "a"), chained(3, "b")
    mixed = [value for pair in zip(ones, others, strict=True) for value in pair]
    assert faults(mixed, one, other) == []
    del mixed[2]
    assert faults(mixed, one, other) == [("missing", 3)]


def test_what_is_no_record_is_told() -> None:
    values, last = chained(2)
    assert faults([None, *values, b"{}"], last) == [("unreadable", 0), ("unreadable", 3)]


def test_the_seal_covers_every_byte_before_it_also_members_of_later_versions() -> None:
    [value], _ = chained(1)
    payload = msgspec.json.decode(value)
    assert list(payload)[-1] == "mac", "what is added stands before the seal"
    with pytest.raises(ValueError, match="seal"):
        opened(value.replace(b'"count":1', b'"count":2'), KEY)


def test_anchors_are_read_as_they_are_written() -> None:
    _, last = chained(2)
    assert read_anchor(last.text()) == last
    for wrong in ("", "c:1", "c:x:" + last.mac, "c:1:abc", ":1:" + last.mac):
        with pytest.raises(ValueError, match="anchor"):
            read_anchor(wrong)


def test_a_record_is_told_whoever_sealed_it() -> None:
    [value], _ = chained(1, key=OTHER_KEY)
    assert told(value).principal == "key:ops"
    with pytest.raises(ValueError, match="seal"):
        told(b"{}")
