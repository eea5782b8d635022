"""The producer epochs of a topic that were claimed: they fence older ones in every partition. Pure.

An epoch that was used counts as claimed. What is forgotten leaves its epoch in the floor, above which the next claim of
a producer that is not known begins: so no producer ever gets an epoch twice.
"""

from itertools import islice, takewhile

import msgspec

from siltlog.infra.limits import EPOCH_MAX
from siltlog.ingest.producers.sequencer import StateBytes


class KnownEpoch(msgspec.Struct, array_like=True):
    """A producer's epoch. `claimed` is the last that was given out, 0 when none was; it may use any that is higher."""

    epoch: int
    used_us: int
    claimed: int = 0


_UNKNOWN = KnownEpoch(0, 0)


class EpochState(msgspec.Struct, array_like=True):
    """The epochs as they are stored, by producer id in order of use."""

    floor: int = 0
    epochs: dict[str, KnownEpoch] = {}


class ProducerEpochs:
    def __init__(self, taken: StateBytes) -> None:
        """`taken` counts what is remembered here."""
        self._known: dict[str, KnownEpoch] = {}
        self._floor = 0
        self._taken = taken

    def epoch(self, producer_id: str) -> int:
        """The last one claimed, 0 when none was."""
        known = self._known.get(producer_id)
        return 0 if known is None else known.epoch

    def claim(self, producer_id: str, used_epoch: int, now_us: int) -> int | None:
        """The next epoch, above all before it and `used_epoch`; None when there is none left."""
        known = self._known.get(producer_id, _UNKNOWN)
        # One that has none of its own that is remembered may have had any below the floor.
        epoch = max(used_epoch, known.epoch, 0 if known.claimed else self._floor) + 1
        if epoch > EPOCH_MAX:
            return None
        self._set(producer_id, KnownEpoch(epoch, now_us, epoch))
        return epoch

    def use(self, producer_id: str, epoch: int, now_us: int) -> None:
        """`producer_id` published with `epoch`, which fences the ones below it."""
        known = self._known.get(producer_id, _UNKNOWN)
        epoch = max(epoch, known.epoch)
        if epoch > 0:
            self._set(producer_id, KnownEpoch(epoch, max(now_us, known.used_us), known.claimed))

    def expire(self, before_us: int) -> int:
        """Forgets those unused since before `before_us`; how many."""
        old = [name for name, _ in takewhile(lambda item: item[1].used_us < before_us, self._known.items())]
        return self._forget(old)

    def forget(self, count: int) -> int:
        """Forgets the `count` ones unused for longest; how many there were."""
        return self._forget(list(islice(self._known, count)))

    def dump(self) -> EpochState:
        return EpochState(self._floor, self._known)

    def load(self, state: EpochState, used_us: int = 0) -> None:
        """Takes in what was stored, as used at `used_us` unless that is 0; of two the higher epoch holds."""
        self._floor = max(self._floor, state.floor)
        for producer_id, stored in state.epochs.items():
            known = self._known.get(producer_id, _UNKNOWN)
            epoch, claimed = max(stored.epoch, known.epoch), max(stored.claimed, known.claimed)
            self._set(producer_id, KnownEpoch(epoch, max(used_us or stored.used_us, known.used_us), claimed))

    def __len__(self) -> int:
        return len(self._known)

    def _set(self, producer_id: str, known: KnownEpoch) -> None:
        # Popped and put back so that the dict stays in order of use.
        if self._known.pop(producer_id, None) is None:
            self._taken.add(producer_id)
        self._known[producer_id] = known

    def _forget(self, producer_ids: list[str]) -> int:
        for producer_id in producer_ids:
            known = self._known.pop(producer_id)
            self._taken.add(producer_id, -1)
            self._floor = max(self._floor, known.claimed)
        return len(producer_ids)
