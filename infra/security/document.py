"""The access document: keys, entries and bindings of a cluster, as one value that is sealed and numbered. Pure.

Each version says the seal of the one it was made of, so that none can be taken out, changed or put back unseen.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.access import Binding, Entry, Policy
from siltlog.infra.security.quotas import Quota
from siltlog.infra.security.sessions import EndedSession, Ends

FORMAT = 1
"""Rises where a release that does not know of a change would let somebody do what the document forbids him."""
_MAC_BYTES = 32


class KeptKey(msgspec.Struct, frozen=True):
    """What is known of an API key: its principal is `key:` and `name`. Times in microseconds."""

    name: str
    hash: bytes
    made_us: int
    expires_us: int | None = None


class AccessDocument(msgspec.Struct, frozen=True):
    """All that decides who may do what; each part by ids."""

    cluster_id: str
    number: int = 0
    previous_mac: bytes = b""
    """The seal of the version that it was made of; empty for the first."""
    written_us: int = 0
    keys: Mapping[str, KeptKey] = {}
    bindings: Mapping[str, Binding] = {}
    entries: Mapping[str, Entry] = {}
    quotas: Mapping[str, Quota] = {}
    ended: Mapping[str, EndedSession] = {}
    """Sessions of the page that were ended before their time, until that."""
    ended_before_us: Mapping[str, int] = {}
    """Up to when sessions of a principal that began are all ended."""
    format: int = FORMAT

    def ends(self) -> Ends:
        return Ends(self.ended, self.ended_before_us)

    def policy(self) -> Policy:
        caps = {quota.principal: quota.caps() for quota in self.quotas.values() if quota.principal is not None}
        return Policy(self.entries, self.bindings, caps)


class Sealed(NamedTuple):
    document: AccessDocument
    mac: bytes
    """Empty for the document that nobody wrote."""


class _Envelope(msgspec.Struct, frozen=True):
    mac: bytes
    document: msgspec.Raw


class _Format(msgspec.Struct, frozen=True):
    format: int = FORMAT


_formats = msgspec.json.Decoder(_Format)
_envelopes = msgspec.json.Decoder(_Envelope)
_documents = msgspec.json.Decoder(AccessDocument)


def seal(document: AccessDocument, mac_key: bytes) -> bytes:
    """Writes a document with its seal."""
    payload = msgspec.json.encode(document)
    return msgspec.json.encode(_Envelope(_mac(payload, mac_key), msgspec.Raw(payload)))


def unseal(content: bytes, mac_key: bytes, cluster_id: str, number: int) -> Sealed:
    """Raises ValueError for what was not sealed with this key, for this cluster, as this version.

    Raises ConfigError for a newer format: the version before it may not stand in, which may allow what it forbids.
    """
    try:
        envelope = _envelopes.decode(content)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no access document: {error}") from None
    payload = bytes(envelope.document)
    if not hmac.compare_digest(_mac(payload, mac_key), envelope.mac):
        raise ValueError("its seal is not of this cluster's secret")
    found = _formats.decode(payload).format
    if found > FORMAT:
        raise ConfigError(
            f"{names.access_object(number)} is of format {found}, and this release reads formats up to {FORMAT}: "
            "start the newer release, which wrote it"
        )
    document = _documents.decode(payload)
    if (document.cluster_id, document.number) != (cluster_id, number):
        raise ValueError(f"it was sealed as version {document.number} of cluster {document.cluster_id}")
    return Sealed(document, envelope.mac)


def _mac(payload: bytes, mac_key: bytes) -> bytes:
    return hashlib.blake2b(payload, key=mac_key, digest_size=_MAC_BYTES, person=b"silt-access").digest()
