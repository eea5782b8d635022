"""Cursors: what is written is read, and what was changed is known."""

import base64
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.reading.cursor import CURSOR_CHARS_MAX, PARTITIONS_MAX, Cursor
from siltlog.infra.errors import Refused
from siltlog.infra.settings.topic_config import PARTITIONS_MAX as TOPIC_PARTITIONS_MAX

OFFSET_MAX = 2**63 - 1
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
partitions = st.integers(0, TOPIC_PARTITIONS_MAX - 1)
offsets = st.dictionaries(partitions, st.integers(0, OFFSET_MAX), min_size=1, max_size=PARTITIONS_MAX)
ids = st.uuids().map(str)


def refused(text: str) -> bool:
    with pytest.raises(Refused) as caught:
        Cursor.parse(text)
    assert (caught.value.error_code, caught.value.members["parameter"]) == ("invalid_parameter", "cursor")
    return True


@given(ids, offsets)
def test_what_is_written_is_read(topic_id: str, at: dict[int, int]) -> None:
    text = Cursor(topic_id, at).text()
    assert re.fullmatch("[A-Za-z0-9_-]+", text)
    assert Cursor.parse(text) == (topic_id, at)


@pytest.mark.parametrize("step", [1, 39])
def test_one_of_the_most_partitions_at_the_end_of_all_offsets_is_short_enough(step: int) -> None:
    at = {partition * step: OFFSET_MAX for partition in range(PARTITIONS_MAX)}
    text = Cursor(str(uuid.uuid4()), at).text()
    assert len(text) <= CURSOR_CHARS_MAX
    assert Cursor.parse(text).offsets == at


def test_more_partitions_than_a_stream_has_are_refused() -> None:
    assert refused(Cursor(str(uuid.uuid4()), dict.fromkeys(range(PARTITIONS_MAX + 1), 0)).text())


@given(ids, offsets, st.data())
def test_one_character_changed_is_known(topic_id: str, at: dict[int, int], data: st.DataObject) -> None:
    text = Cursor(topic_id, at).text()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([letter for letter in ALPHABET if letter != text[place]]))
    assert refused(text[:place] + other + text[place + 1 :])


@given(ids, offsets, st.data())
def test_what_was_cut_or_has_more_is_known(topic_id: str, at: dict[int, int], data: st.DataObject) -> None:
    text = Cursor(topic_id, at).text()
    assert refused(text[: data.draw(st.integers(0, len(text) - 1))])
    assert refused(text + data.draw(st.text(ALPHABET, min_size=1, max_size=8)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_another_spelling_of_the_same_bytes_is_none_of_ours(count: int) -> None:
    text = Cursor(str(uuid.uuid4()), dict.fromkeys(range(count), 1)).text()
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    others = [text[:-1] + letter for letter in ALPHABET if letter != text[-1]]
    assert all(refused(other) for other in others)
    same = [other for other in others if base64.urlsafe_b64decode(other + "=" * (-len(other) % 4)) == data]
    assert bool(same) == bool(len(data) % 3)


@given(st.text(max_size=200))
def test_any_text_is_a_refusal(text: str) -> None:
    assert refused(text)
