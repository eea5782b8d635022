"""Frames of Kafka with something wrong in them."""

import random


def mutated(chance: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(4, len(data) + 1)
        match chance.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = chance.randbytes(1)
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 5))
            case 3:
                data[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f"))
    return bytes(data)
