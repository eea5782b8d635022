"""The stored form of a journal's objects: a header, and the group commits of the body as entries of the WAL.

    object = header (HEADER_BYTES), entry, entry, ...     an empty body is an object too, the first of each journal
    seal   = header                                       a successor's: nothing from this number on counts

The header is under a CRC32C of its own and holds the SHA-256 of the body. The nonce is of one object alone: with the
digest it tells an object of one's own from one that a copy of this machine has put under the same number.
"""

import hashlib
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal.codec import Frame, Position, decode_frames, decode_head, encode_entry

HEADER_BYTES = 1024
FORMAT_VERSION = 1
NONCE_BYTES = 16

_MAGIC = b"SILTJRNL"
_CRC = struct.Struct("<I")
# magic, format version, kind, number, first, nonce, length and digest of the body, lengths of the two names that follow
_HEADER = struct.Struct("<8sIIQQ16sQ32sHH")
_SEED = struct.Struct("<Q16s")
_NAMES_BYTES_MAX = HEADER_BYTES - _HEADER.size - _CRC.size


class ObjectKind(IntEnum):
    GROUPS = 1
    SEAL = 2


class Header(NamedTuple):
    kind: ObjectKind
    cluster_id: str
    journal: str
    """The journal's path below the folder of journals: the node and the start."""
    number: int
    first: int
    """Everything below this number is in tables, and may be deleted."""
    nonce: bytes
    body_bytes: int
    digest: bytes
    format_version: int = FORMAT_VERSION


class Object(NamedTuple):
    header: Header
    data: bytes


class Read(NamedTuple):
    header: Header
    groups: list[list[Frame]]
    """The frames of each group commit; payloads are views of what was read."""


def journal_name(node: str, start: str) -> str:
    """Names the journal of one start of a node."""
    return f"{node}/{start}"


def folder_of(journal: str) -> str:
    node, _, start = journal.partition("/")
    return names.journal_folder(node, start)


def path_of(journal: str, number: int) -> str:
    node, _, start = journal.partition("/")
    return names.journal_object(node, start, number)


def encode_groups(
    groups: Sequence[Sequence[Frame]], *, cluster_id: str, journal: str, number: int, first: int, nonce: bytes
) -> Object:
    """The object `number` with these group commits, each of which is there whole or not at all."""
    assert first <= number, "an object never says that itself may go"
    seed = _seed(cluster_id, journal, number, nonce)
    buffers: list[pa.Buffer | bytes] = []
    at = HEADER_BYTES
    for frames in groups:
        place = Position(number, at)
        entry, length, _ = encode_entry(frames, start=place, seed=seed, synced=place)
        buffers += entry
        at += length
    body = b"".join(buffers)
    header = Header(
        ObjectKind.GROUPS, cluster_id, journal, number, first, nonce, len(body), hashlib.sha256(body).digest()
    )
    return Object(header, _encode_header(header) + body)


def encode_seal(*, cluster_id: str, journal: str, number: int, first: int, nonce: bytes) -> Object:
    header = Header(ObjectKind.SEAL, cluster_id, journal, number, first, nonce, 0, hashlib.sha256(b"").digest())
    return Object(header, _encode_header(header))


def _encode_header(header: Header) -> bytes:
    cluster_id, journal = header.cluster_id.encode(), header.journal.encode()
    assert len(cluster_id) + len(journal) <= _NAMES_BYTES_MAX and len(header.nonce) == NONCE_BYTES
    start = _HEADER.pack(
        _MAGIC,
        header.format_version,
        header.kind,
        header.number,
        header.first,
        header.nonce,
        header.body_bytes,
        header.digest,
        len(cluster_id),
        len(journal),
    )
    block = (start + cluster_id + journal).ljust(HEADER_BYTES - _CRC.size, b"\0")
    return block + _CRC.pack(crc32c(block))


def decode_header(data: bytes, *, cluster_id: str, journal: str, number: int) -> Header:
    """The header of what was read as the object `number` of a journal.

    Raises CorruptData that names the object where it is damaged, another one, or of a newer version of siltlog.
    """
    block = data[: HEADER_BYTES - _CRC.size]
    if len(data) < HEADER_BYTES or not block.startswith(_MAGIC):
        raise _damaged(journal, number, "it has no header")
    if crc32c(block) != _CRC.unpack_from(data, HEADER_BYTES - _CRC.size)[0]:
        raise _damaged(journal, number, "its header fails its checksum")
    _, version, kind, found, first, nonce, body_bytes, digest, cluster_bytes, journal_bytes = _HEADER.unpack_from(block)
    if version > FORMAT_VERSION:
        raise problem(
            "corrupt_data",
            f"{path_of(journal, number)} has format version {version}, and this version of siltlog reads "
            f"up to {FORMAT_VERSION}: start the newer version",
        )
    at = _HEADER.size + cluster_bytes
    header = Header(
        ObjectKind(kind),
        block[_HEADER.size : at].decode(),
        block[at : at + journal_bytes].decode(),
        found,
        first,
        nonce,
        body_bytes,
        digest,
        version,
    )
    if (header.cluster_id, header.journal, header.number) != (cluster_id, journal, number):
        raise _damaged(
            journal, number, f"it is number {found} of journal {header.journal} of cluster {header.cluster_id}"
        )
    return header


def decode_object(data: bytes, *, cluster_id: str, journal: str, number: int) -> Read:
    """The whole object. Raises CorruptData as `decode_header`, and where the body is not what the header says."""
    header = decode_header(data, cluster_id=cluster_id, journal=journal, number=number)
    body = memoryview(data)[HEADER_BYTES:]
    if len(body) != header.body_bytes or hashlib.sha256(body).digest() != header.digest:
        raise _damaged(journal, number, f"its body is not the {header.body_bytes} bytes that its header tells of")
    seed = _seed(cluster_id, journal, number, header.nonce)
    whole = pa.py_buffer(data)
    groups: list[list[Frame]] = []
    at = HEADER_BYTES
    while at < len(data):
        head = decode_head(whole, Position(number, at), seed)
        if head is None:
            raise _damaged(journal, number, f"there is no group commit at byte {at}")
        groups.append([frame for frame, _ in decode_frames(whole, number, head)])
        at = head.end
    return Read(header, groups)


def same_object(own: Header, found: Header) -> bool:
    """Whether what was found is this very object: a nonce alone is known to a copy of the machine, too."""
    return (own.nonce, own.digest, own.kind) == (found.nonce, found.digest, found.kind)


def _seed(cluster_id: str, journal: str, number: int, nonce: bytes) -> int:
    """Where the CRC of each entry starts: one of another object never passes for one of this."""
    return crc32c(cluster_id.encode() + b"\0" + journal.encode() + b"\0" + _SEED.pack(number, nonce))


def _damaged(journal: str, number: int, detail: str) -> SiltlogError:
    path = path_of(journal, number)
    return problem("corrupt_data", f"{path} is damaged: {detail}. Restore it from a copy of the store", path=path)
