"""What a connection of gRPC counts, against messages that are made, taken, given up and cut by hand."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.grpc.arrivals import (
    DATA,
    END_STREAM,
    HEADERS,
    MESSAGE_HEAD_BYTES,
    PADDED,
    PREFACE_BYTES,
    RST_STREAM,
    Arrivals,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = 4
STREAMS = (1, 3, 5)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", padding: int | None = None) -> bytes:
    if padding is not None:
        flags, payload = flags | PADDED, bytes([padding]) + payload + bytes(padding)
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(nbytes: int, packed: bool = False) -> bytes:
    return bytes([packed]) + nbytes.to_bytes(4) + bytes(nbytes)


def opened(*streams: int) -> Arrivals:
    arrivals = Arrivals()
    arrivals.came(PREFACE + frame(SETTINGS, 0, 0) + b"".join(frame(HEADERS, 0, stream, b"h") for stream in streams))
    return arrivals


def exchange(dice: Random) -> tuple[bytes, int, list[int]]:
    """What a client sends on some streams, how much of that is of messages, and the messages that are whole."""
    out, count, whole = [PREFACE, frame(SETTINGS, 0, 0, b"sixsix")], 0, []
    rest: dict[int, bytes] = {}
    for stream in STREAMS:
        out.append(frame(HEADERS, 0, stream, bytes(dice.randint(0, 20))))
        sizes = [dice.randint(0, 40) for _ in range(dice.randint(0, 4))]
        whole += sizes
        rest[stream] = b"".join(map(message, sizes)) + message(50)[: dice.randint(0, 54)]
        count += len(rest[stream])
    while any(rest.values()):
        stream = dice.choice([stream for stream, left in rest.items() if left])
        part = dice.randint(0, len(rest[stream]))
        payload, rest[stream] = rest[stream][:part], rest[stream][part:]
        out.append(frame(DATA, 0, stream, payload, dice.choice([None, dice.randint(0, 9)])))
    return b"".join(out), count, whole


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_what_came_counts_however_it_was_cut_until_it_is_taken(seed: int, piece: int) -> None:
    dice = Random(seed)
    sent, count, whole = exchange(dice)
    arrivals, at = Arrivals(), 0
    while at < len(sent):
        cut = dice.randint(1, piece)
        arrivals.came(sent[at : at + cut])
        at += cut
    assert arrivals.nbytes == count
    dice.shuffle(whole)
    for size in whole:
        arrivals.taken(size)
        count -= MESSAGE_HEAD_BYTES + size
        assert arrivals.nbytes == count
    for stream in STREAMS:
        arrivals.came(frame(RST_STREAM, 0, stream, bytes(4)))
    assert arrivals.nbytes == 0


def test_a_compressed_message_makes_no_more_room_than_it_took() -> None:
    arrivals = opened(1, 3)
    arrivals.came(frame(DATA, 0, 1, message(100_000)[:60_000]))
    for _ in range(3):
        arrivals.came(frame(DATA, 0, 3, message(10, packed=True)))
        arrivals.taken(5_000_000)
        assert arrivals.nbytes == 60_000
    arrivals.came(frame(DATA, 0, 3, message(10, packed=True) + message(200)))
    arrivals.taken(200)
    assert arrivals.nbytes == 60_205, "which of the two it was nobody can say"
    arrivals.taken(5_000_000)
    assert arrivals.nbytes == 60_000
    arrivals.came(frame(DATA, 0, 3, message(300) + message(7)))
    arrivals.taken(300)
    assert arrivals.nbytes == 60_012, "nothing compressed waits any more"


def test_what_nobody_can_have_taken_makes_no_room() -> None:
    arrivals = opened(1)
    arrivals.came(frame(DATA, 0, 1, message(9) + message(50)[:30]))
    arrivals.taken(8)
    arrivals.taken(50)
    assert arrivals.nbytes == 14 + 30


@pytest.mark.parametrize("by_server", [False, True])
def test_a_stream_that_ends_holds_nothing_more(by_server: bool) -> None:
    arrivals = opened(1, 3)
    arrivals.came(frame(DATA, 0, 1, message(50)[:30]) + frame(DATA, 0, 3, message(8) + message(50)[:20]))
    if by_server:
        arrivals.sent(frame(SETTINGS, 0, 0) + frame(HEADERS, 0, 1, b"h") + frame(DATA, 0, 1, b"answer"))
        assert arrivals.nbytes == 30 + 13 + 20
        arrivals.sent(frame(HEADERS, END_STREAM, 1, b"t"))
    else:
        arrivals.came(frame(RST_STREAM, 0, 1, bytes(4)))
    assert arrivals.nbytes == 13 + 20
    arrivals.came(frame(DATA, 0, 1, message(50)[30:]))
    assert arrivals.nbytes == 13 + 20, "it is thrown away"
    arrivals.came(frame(DATA, END_STREAM, 3))
    assert arrivals.nbytes == 13, "a message that is cut off is none"
    arrivals.sent(frame(HEADERS, END_STREAM, 3, b"t"))
    assert arrivals.nbytes == 0, "nobody is left to take it"


def test_a_stream_is_not_opened_again() -> None:
    arrivals = opened(1, 3)
    arrivals.sent(frame(HEADERS, END_STREAM, 1, b"t"))
    arrivals.came(frame(HEADERS, 0, 1, b"h") + frame(DATA, 0, 1, message(50)[:30]))
    assert arrivals.nbytes == 0


def test_the_preface_is_that_of_the_protocol() -> None:
    assert len(PREFACE) == PREFACE_BYTES
