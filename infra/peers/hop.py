"""What a node says of a request that it makes of another, and how that is proven. Pure.

Whoever can read the bucket, or reach a node, must not pose as a node. Two nodes that share the secret of the cluster
exchange challenges on each connection; then each request has a number of its own and a MAC over all that it asks. There
are no clocks in it, and nothing that was overheard counts again.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.names import HEADER_HOP

CHALLENGE_BYTES = 32
DIGEST_BYTES = 32
SAID_BYTES_MAX = 16 * 1024
"""A token has at most 8 KiB, and all groups of it are said."""
HELLO = "hello"
OF_HEAD = frozenset((b"host", b"content-length", b"connection", b"transfer-encoding", HEADER_HOP.lower().encode()))
"""Fields of a request that are its connection's, and not part of what is asked."""
NOTHING = blake2b(b"", digest_size=DIGEST_BYTES).digest()

Fields = Iterable[tuple[bytes, bytes]]
"""Names in lower case, and values."""


class Hop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """For whom a node makes a request. `to` is the journal of the node that it is meant for, `n` counts the requests of
    a connection. Without a `principal` nobody has said who he is."""

    to: str
    n: int
    principal: str = ""
    groups: tuple[str, ...] = ()
    credential: str = ""
    until_us: int | None = None
    address: str = ""
    access: int = 0
    """The version of the access document by which the caller was let in."""


class Asked(msgspec.Struct, frozen=True):
    """What is asked of the other node, but for the body."""

    method: str
    target: bytes
    """The path with its query, as it is sent."""
    fields: bytes

    @classmethod
    def of(cls, method: str, target: bytes, fields: Fields) -> "Asked":
        kept = sorted((name, value) for name, value in fields if name not in OF_HEAD)
        return cls(method, target, digest(_framed(part for field in kept for part in field)))


class Session(msgspec.Struct):
    """What two nodes know of each other on one connection."""

    ours: bytes = b""
    theirs: bytes = b""
    n: int = 0


_HOP = msgspec.json.Decoder(Hop)
_encode = msgspec.json.Encoder().encode


def digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def hello(challenge: bytes) -> str:
    """The first field of a connection."""
    return f"{HELLO} {_text(challenge)}"


def challenge_of(said: str) -> bytes:
    """Reads the challenge of a hello. Raises Refused."""
    challenge = _bytes(said.removeprefix(HELLO).strip())
    if len(challenge) != CHALLENGE_BYTES:
        raise refused("its challenge has another length")
    return challenge


def welcome(key: bytes, asking: bytes, answering: bytes) -> str:
    """The answer to a hello: a challenge of its own, and a proof that it is a node's too."""
    return f"{_text(answering)} {_text(_mac(key, b'welcome', asking, answering))}"


def welcomed(key: bytes, asking: bytes, said: str) -> bytes:
    """Reads the challenge of a welcome. Raises Refused where it is no node's of this cluster."""
    answering, _, proof = said.partition(" ")
    challenge = _bytes(answering)
    if not hmac.compare_digest(_mac(key, b"welcome", asking, challenge), _bytes(proof)):
        raise refused("who answers does not have the secret of this cluster")
    return challenge


def signed(key: bytes, asking: bytes, answering: bytes, hop: Hop, asked: Asked, body: bytes) -> str:
    """The field of a request whose body has this digest. Without a key nothing is proven."""
    said = _encode(hop)
    proof = _proof(key, asking, answering, said, asked, body) if key else b""
    return f"{_text(said)} {_text(body)} {_text(proof)}"


def verified(key: bytes, session: Session, said: str, asked: Asked, journal: str) -> tuple[Hop, bytes]:
    """Gives what was said and the digest that the body must have; its number is used up. Raises Refused."""
    if len(said) > SAID_BYTES_MAX:
        raise refused("it is too long")
    parts = said.split(" ")
    if len(parts) != 3:
        raise refused("it does not have its three parts")
    content, body, proof = map(_bytes, parts)
    if key:
        if not session.ours:
            raise refused("no challenges were exchanged on this connection")
        if not hmac.compare_digest(_proof(key, session.theirs, session.ours, content, asked, body), proof):
            raise refused("it is not signed with the secret of this cluster, or not for this request")
    try:
        hop = _HOP.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise refused("it cannot be read") from None
    if hop.to != journal:
        raise refused("it is meant for another node, or for an earlier start of this one")
    if key:
        if hop.n <= session.n:
            raise refused("it came before on this connection")
        session.n = hop.n
    return hop, body


def refused(reason: str) -> SiltlogError:
    return problem(
        "invalid_parameter",
        f"the header field {HEADER_HOP} is for nodes of this cluster: {reason}; leave it out",
        parameter=HEADER_HOP,
    )


def _proof(key: bytes, asking: bytes, answering: bytes, said: bytes, asked: Asked, body: bytes) -> bytes:
    return _mac(key, b"hop", asking, answering, said, asked.method.encode(), asked.target, asked.fields, body)


def _mac(key: bytes, *parts: bytes) -> bytes:
    return blake2b(_framed(parts), key=key, digest_size=DIGEST_BYTES).digest()


def _framed(parts: Iterable[bytes]) -> bytes:
    """Joins parts so that no other parts give the same."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused("it is not written as one is") from None
