"""Journals and their ends under seeded faults, and that each rule is needed: a mutant of each is caught."""

from collections.abc import Callable

import pytest

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.journal import reader, seal, writer
from siltlog.ingest.journal.codec import Header, encode_seal, path_of
from siltlog.ingest.journal.seal import Sealed
from siltlog.ingest.journal.writer import Landing, Shipment, Writer
from tests.rigs.chaos import seeds
from tests.rigs.journal_simulation import Owner, World

MUTANT_SEEDS = 200


@pytest.mark.rule("CJ2", "CJ3", "CJ4", "CJ5", "CJ6")
@pytest.mark.chaos
@pytest.mark.parametrize("block", range(4))
def test_what_was_told_of_is_there_once(block: int) -> None:
    for seed in seeds(40):
        World(4 * seed + block).run()


def _exists_is_landed(patch: pytest.MonkeyPatch) -> None:
    def landing(own: Header, put: Put, found: Header | None) -> Landing:
        return Landing.AGAIN if found is None and put is not Put.WRITTEN else Landing.LANDED

    patch.setattr(writer, "landing", landing)


def _another_content(patch: pytest.MonkeyPatch) -> None:
    answer = Owner.answer

    def again(self: Owner) -> None:
        answer(self)
        for number, made in self.flying.items():
            self.flying[number] = self._object(number, made.header.first, ())

    patch.setattr(Owner, "answer", again)


def _acked_behind_a_hole(patch: pytest.MonkeyPatch) -> None:
    landed_one = Writer.landed_one

    def each(self: Writer[list[object]], number: int) -> list[Shipment[list[object]]]:
        one = self._flying[number]
        landed_one(self, number)
        return [one]

    patch.setattr(Writer, "landed_one", each)


def _first_passes_what_has_not_landed(patch: pytest.MonkeyPatch) -> None:
    take = Writer.take

    def passes(self: Writer[list[object]], now_seconds: float) -> Shipment[list[object]] | None:
        shipment = take(self, now_seconds)
        if shipment is None:
            return None
        self._firsts[shipment.number] = first = min(max(self._first, shipment.first), shipment.number)
        return shipment._replace(first=first)

    patch.setattr(Writer, "take", passes)


def _deleted_before_that_first_landed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "deletable", lambda self: range(self._deleted, self._landed))
    patch.setattr(Writer, "deleted", lambda self, number: setattr(self, "_deleted", number + 1))


def _sealed_from_the_lowest(patch: pytest.MonkeyPatch) -> None:
    def lowest(store: ObjectStore, cluster_id: str, journal: str, there: dict[int, int]) -> seal._End | None:
        at = first = min(there)
        while at in there and there[at] != seal.HEADER_BYTES:
            at += 1
        return seal._End(max(at, 1), first, False)

    end = seal._end

    def mutant(store: ObjectStore, cluster_id: str, journal: str, there: dict[int, int]) -> seal._End | None:
        found = end(store, cluster_id, journal, there)
        return found if found is None or found.sealed else lowest(store, cluster_id, journal, there)

    patch.setattr(seal, "_end", mutant)


def _seal_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    def at_once(store: ObjectStore, cluster_id: str, journal: str, nonce: bytes) -> Sealed:
        end = seal._end(store, cluster_id, journal, seal.listed(store, journal))
        assert end is not None
        made = encode_seal(cluster_id=cluster_id, journal=journal, number=end.number, first=end.first, nonce=nonce)
        store.put_if_absent(path_of(journal, end.number), made.data)
        return Sealed(journal, end.first, end.number)

    patch.setattr(seal, "seal", at_once)


def _goes_on_over_a_seal(patch: pytest.MonkeyPatch) -> None:
    def met_seal(self: Owner) -> None:
        for number in list(self.flying):
            self._landed(self.writer.landed_one(number))
        self.flying.clear()

    patch.setattr(Owner, "met_seal", met_seal)


def _chain_cut_with_the_claim(patch: pytest.MonkeyPatch) -> None:
    take_in = Owner._take_in

    def cut(self: Owner, found: list[reader.Kept], table_offset: int) -> None:
        take_in(self, found, table_offset)
        self.world.table.settled = self.epoch

    patch.setattr(Owner, "_take_in", cut)


@pytest.mark.parametrize(
    "mutant",
    [
        _exists_is_landed,
        _another_content,
        _acked_behind_a_hole,
        _first_passes_what_has_not_landed,
        _deleted_before_that_first_landed,
        _sealed_from_the_lowest,
        _seal_not_looked_at_again,
        _goes_on_over_a_seal,
        _chain_cut_with_the_claim,
    ],
)
@pytest.mark.rule("CJ2", "CJ3", "CJ4", "CJ5", "CJ6")
def test_a_mutant_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, CorruptData)):
        for seed in range(MUTANT_SEEDS):
            World(seed).run()
