"""The records of the audit log, each sealed together with the one before it, and what tells whether any was touched.

Every data directory writes a chain of its own. A record's last member is its seal: a keyed hash of the bytes before it,
among which is the seal of the record before. Who lacks the key can neither change a record nor join two that had
another between them; that the end was cut off shows only by an anchor, a seal that was noted elsewhere. Pure.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

MAC_BYTES = 32
MAC_CHARS = 2 * MAC_BYTES
PURPOSE = "audit"
"""The purpose with which the key of the seals is derived from the cluster's secret."""
Outcome = Literal["begun", "done", "refused", "failed"]
"""`begun` is written before a change is made, the others afterwards, or for what was no change."""
Fault = Literal["unreadable", "edited", "missing", "duplicate", "out_of_order", "forked", "cut"]
_SEALED = re.compile(rb',"mac":"([0-9a-f]{%d})"}' % MAC_CHARS)
_SEAL_BYTES = len(b',"mac":""}') + MAC_CHARS


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """Says who did what to which, and how that ended: what a record has but for its place in the chain."""

    request_id: str
    principal: str
    """Empty for who did not say who he is."""
    credential: str = ""
    """The id of a key, or what else names a credential without giving it away."""
    address: str = ""
    operation: str
    resource: str = ""
    outcome: Outcome
    status: int | None = None
    """None while it has only begun."""
    detail: str = ""
    count: int = 1
    """For so many alike this one record stands."""


class AuditRecord(Audited, frozen=True, kw_only=True):
    """The value of a record of the audit log, but for its seal. Open: records outlive versions."""

    seq: int
    """Rises by one in its chain."""
    time: str
    node: str
    chain: str
    """Names the data directory that wrote it."""
    previous: str
    """The seal of the record before in its chain; empty for the first."""

    def audited(self) -> Audited:
        return Audited(**{name: getattr(self, name) for name in Audited.__struct_fields__})


class Anchor(NamedTuple):
    """The last record of a chain, as somebody noted it."""

    chain: str
    seq: int
    mac: str

    def text(self) -> str:
        return f"{self.chain}:{self.seq}:{self.mac}"


START_SEQ = 0
_UNKNOWN = "?"
"""Instead of the seal of a record that was edited."""


def start_of(chain: str) -> Anchor:
    """Stands for the record before the first."""
    return Anchor(chain, START_SEQ, "")


class Finding(NamedTuple):
    """Says what is wrong, and with which record: `offset` is None where it is about one that is not there."""

    fault: Fault
    offset: int | None
    chain: str
    seq: int | None
    text: str


class Read(NamedTuple):
    record: AuditRecord
    mac: str

    def anchor(self) -> Anchor:
        return Anchor(self.record.chain, self.record.seq, self.mac)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditRecord).decode


def sealed(audited: Audited, last: Anchor, *, time: str, node: str, key: bytes) -> tuple[bytes, Anchor]:
    """Writes the record that follows `last` in its chain; gives its bytes, and what the next one follows."""
    record = AuditRecord(
        seq=last.seq + 1, time=time, node=node, chain=last.chain, previous=last.mac, **msgspec.structs.asdict(audited)
    )
    payload = _encode(record)
    mac = _mac(payload, key).hex()
    return payload[:-1] + b',"mac":"%b"}' % mac.encode(), Anchor(last.chain, record.seq, mac)


def opened(value: bytes, key: bytes) -> Read:
    """Reads a record. Raises ValueError where it is none, or its seal is another's."""
    read, is_genuine = _opened(value, key)
    if not is_genuine:
        raise ValueError("its seal does not fit what it says")
    return read


def told(value: bytes) -> AuditRecord:
    """Reads a record without asking whether its seal fits. Raises ValueError where it is none."""
    (record, _), _ = _opened(value, b"")
    return record


def read_anchor(text: str) -> Anchor:
    """Reads what `Anchor.text` wrote. Raises ValueError."""
    chain, _, rest = text.partition(":")
    seq, _, mac = rest.partition(":")
    if not chain or not seq.isdecimal() or len(mac) != MAC_CHARS or not set(mac) <= set("0123456789abcdef"):
        raise ValueError(f"{text[:100]!r} is no anchor: write CHAIN:SEQ:MAC as the server's log has it")
    return Anchor(chain, int(seq), mac)


class Verifier:
    """Is shown all records of the log in the order of their offsets, from its start or from any place on."""

    def __init__(self, key: bytes, anchors: Iterable[Anchor] = (), *, from_start: bool = False) -> None:
        """`from_start`: the log still has its first record, so that a chain that begins later lacks something."""
        self._key = key
        self._from_start = from_start
        self._last: dict[str, Anchor] = {}
        self._anchors: dict[str, dict[int, str]] = {}
        for anchor in anchors:
            self._anchors.setdefault(anchor.chain, {})[anchor.seq] = anchor.mac
        self.records = 0

    def see(self, offset: int, value: bytes | None) -> Iterator[Finding]:
        """Yields what is wrong with the next record."""
        self.records += 1
        try:
            (record, mac), is_genuine = _opened(value or b"", self._key)
        except ValueError as error:
            yield Finding(
                "unreadable", offset, "", None, f"the record at offset {offset} is none of the audit: {error}"
            )
            return
        chain, seq = record.chain, record.seq
        where = f"record {seq} of chain {chain}, at offset {offset},"
        last = self._last.get(chain)
        if last is None:
            last = start_of(chain) if self._from_start else Anchor(chain, seq - 1, record.previous)
        if is_genuine:
            yield from self._placed(where, offset, record, mac, last)
            if seq > last.seq:
                self._last[chain] = Anchor(chain, seq, mac)
        else:
            yield Finding("edited", offset, chain, seq, f"{where} was edited: its seal does not fit what it says")
            if seq == last.seq + 1:
                # What it says counts no further than that something was here.
                self._last[chain] = Anchor(chain, seq, _UNKNOWN)

    def end(self) -> Iterator[Finding]:
        """Yields what anchors tell of records that are not there, after all that are."""
        for chain, noted in self._anchors.items():
            seq = max(noted)
            last = self._last.get(chain, start_of(chain))
            if seq > last.seq:
                lost = _range(last.seq + 1, seq)
                text = f"the end of chain {chain} was cut off: {lost} of it is missing, which an anchor names"
                yield Finding("cut", None, chain, seq, text)

    def anchors(self) -> list[Anchor]:
        """Lists the last record of each chain that was seen."""
        return [anchor for anchor in self._last.values() if anchor.mac != _UNKNOWN]

    def _placed(self, where: str, offset: int, record: AuditRecord, mac: str, last: Anchor) -> Iterator[Finding]:
        chain, seq = record.chain, record.seq
        if seq == last.seq and mac == last.mac:
            yield Finding("duplicate", offset, chain, seq, f"{where} is there twice")
        elif seq <= last.seq:
            text = f"{where} stands behind record {last.seq}: it was moved, or put in again"
            yield Finding("out_of_order", offset, chain, seq, text)
        elif seq > last.seq + 1:
            text = f"{_range(last.seq + 1, seq - 1)} of chain {chain} is missing before offset {offset}"
            yield Finding("missing", offset, chain, seq, text)
        elif last.mac not in (_UNKNOWN, record.previous):
            # Both are genuine: the chain went on from one place twice, as it does from a copy of a data directory.
            text = f"{where} follows another record {last.seq} than the one that is there"
            yield Finding("forked", offset, chain, seq, text)
        elif self._anchors.get(chain, {}).get(seq, mac) != mac:
            yield Finding("forked", offset, chain, seq, f"{where} is another than the anchor names")


def _opened(value: bytes, key: bytes) -> tuple[Read, bool]:
    found = _SEALED.fullmatch(value, max(len(value) - _SEAL_BYTES, 0))
    if found is None:
        raise ValueError("it ends with no seal")
    payload = value[:-_SEAL_BYTES] + b"}"
    try:
        record = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    mac = found[1].decode()
    return Read(record, mac), hmac.compare_digest(_mac(payload, key), bytes.fromhex(mac))


def _mac(payload: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(payload, key=key, digest_size=MAC_BYTES, person=b"silt-audit").digest()


def _range(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"what was record {first} to {last}"
