"""Ends the journal of a process that is taken over from: a seal at its first free number, which all agree on."""

from dataclasses import dataclass
from typing import NamedTuple

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.ingest.journal.codec import (
    HEADER_BYTES,
    Header,
    ObjectKind,
    decode_header,
    encode_seal,
    folder_of,
    path_of,
)

SEAL_ATTEMPTS_MAX = 1_000
"""A writer that goes on meanwhile takes free numbers too, some in a second."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A journal that has ended: the objects from `first` to below `end` are all there is of it."""

    journal: str
    first: int
    end: int


def seal(store: ObjectStore, cluster_id: str, journal: str, nonce: bytes) -> Sealed:
    """Whoever seals the same journal, at the same time or later, gets the same end.

    Raises CorruptData where the journal is not there, or not whole; Unavailable.
    """
    before: dict[int, int] | None = None
    lacking = False
    for _ in range(SEAL_ATTEMPTS_MAX):
        there = listed(store, journal)
        # Two lists that are alike: pages that a store does not sort may come from before and after a change.
        if there == before and lacking:
            raise _not_whole(journal) if there else _nothing_found(store, journal)
        end = _end(store, cluster_id, journal, there)
        if end is not None and end.sealed and there == before and _counts(store, journal, end):
            return Sealed(journal, end.first, end.number)
        lacking = end is None or (end.sealed and there == before)
        before = there
        if end is not None and not end.sealed:
            made = encode_seal(cluster_id=cluster_id, journal=journal, number=end.number, first=end.first, nonce=nonce)
            # Whatever is answered: what stands there, and whether it counts, is seen in the next list.
            store.put_if_absent(path_of(journal, end.number), made.data)
    raise problem("topic_unavailable", f"the journal {journal} goes on and cannot be sealed; stop its node")


def _counts(store: ObjectStore, journal: str, end: "_End") -> bool:
    """Whether the object before a seal is there: where the seal's number was trimmed, that one went first."""
    return store.size(path_of(journal, end.number - 1)) is not None


def listed(store: ObjectStore, journal: str) -> dict[int, int]:
    """The sizes of the journal's objects by number, in rising order."""
    prefix = f"{folder_of(journal)}/"
    found = ((info.path.removeprefix(prefix), info.size) for info in store.list(folder_of(journal)))
    return dict(sorted((int(name), size) for name, size in found if name.isascii() and name.isdigit()))


class _End(NamedTuple):
    number: int
    first: int
    sealed: bool


def _end(store: ObjectStore, cluster_id: str, journal: str, there: dict[int, int]) -> _End | None:
    """The first number, from the highest `first` on, that is free or has a seal; None where what must be there is not.

    The highest number says the highest `first`: it never falls from one to the next.
    """

    def header(number: int) -> Header:
        data = store.get(path_of(journal, number))
        return decode_header(data, cluster_id=cluster_id, journal=journal, number=number)

    if not there:
        return None
    try:
        first = header(max(there)).first
        at = first
        while at in there and not (there[at] == HEADER_BYTES and header(at).kind is ObjectKind.SEAL):
            at += 1
    except FileNotFoundError:
        return None
    # An object never says that itself may go, or what has not landed: the one before the end is there.
    return None if at == first else _End(at, first, at in there)


def _nothing_found(store: ObjectStore, journal: str) -> SiltlogError:
    return problem(
        "corrupt_data",
        f"nothing is found of the journal {folder_of(journal)} below {store.root_uri}, and it may have held "
        "acknowledged records: give the server the root that it was written to, or restore the folder",
        path=folder_of(journal),
    )


def _not_whole(journal: str) -> SiltlogError:
    folder = folder_of(journal)
    return problem(
        "corrupt_data",
        f"the journal {folder} is not whole: objects of it are gone that were not yet to be. It was cleaned up after "
        "its topics went on elsewhere, or deleted by something else; restore the folder from a copy of the store",
        path=folder,
    )
