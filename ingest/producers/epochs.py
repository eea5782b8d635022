"""The producer epochs of a topic that were claimed: they fence older ones in every partition. Pure.

An epoch that was used counts as claimed. What is forgotten leaves its epoch in the floor, above which the next claim of
a producer that is not known begins: so no producer ever gets an epoch twice.
"""

from itertools import islice, takewhile

import msgspec

from siltlog.infra.limits import EPOCH_MAX
from siltlog.ingest.producers.sequencer import StateBytes


class Claim(msgspec.Struct, array_like=True):
    """`claimed` is the last epoch that was given out, 0 when none was; a producer may use any that is higher."""

    epoch: int
    used_us: int
    claimed: int = 0


_NOT_CLAIMED = Claim(0, 0)


class ClaimState(msgspec.Struct, array_like=True):
    """The claims as they are stored; `claims` by producer id, in order of use."""

    floor: int = 0
    claims: dict[str, Claim] = {}


class Claims:
    def __init__(self, taken: StateBytes) -> None:
        """`taken` counts what is remembered here."""
        self._claims: dict[str, Claim] = {}
        self._floor = 0
        self._taken = taken

    def epoch(self, producer_id: str) -> int:
        """The last one claimed, 0 when none was."""
        claim = self._claims.get(producer_id)
        return 0 if claim is None else claim.epoch

    def claim(self, producer_id: str, used_epoch: int, now_us: int) -> int | None:
        """The next epoch, above all before it and `used_epoch`; None when there is none left."""
        known = self._claims.get(producer_id, _NOT_CLAIMED)
        # One that has none of its own that is remembered may have had any below the floor.
        epoch = max(used_epoch, known.epoch, 0 if known.claimed else self._floor) + 1
        if epoch > EPOCH_MAX:
            return None
        self._set(producer_id, Claim(epoch, now_us, epoch))
        return epoch

    def use(self, producer_id: str, epoch: int, now_us: int) -> None:
        """`producer_id` published with `epoch`, which fences the ones below it."""
        known = self._claims.get(producer_id, _NOT_CLAIMED)
        epoch = max(epoch, known.epoch)
        if epoch > 0:
            self._set(producer_id, Claim(epoch, max(now_us, known.used_us), known.claimed))

    def expire(self, before_us: int) -> int:
        """Forgets those unused since before `before_us`; how many."""
        old = [name for name, _ in takewhile(lambda item: item[1].used_us < before_us, self._claims.items())]
        return self._forget(old)

    def forget(self, count: int) -> int:
        """Forgets the `count` ones unused for longest; how many there were."""
        return self._forget(list(islice(self._claims, count)))

    def dump(self) -> ClaimState:
        return ClaimState(self._floor, self._claims)

    def load(self, state: ClaimState, used_us: int = 0) -> None:
        """Takes in what was stored, as used at `used_us` or later; of two the higher epoch holds."""
        self._floor = max(self._floor, state.floor)
        for producer_id, claim in state.claims.items():
            known = self._claims.get(producer_id, _NOT_CLAIMED)
            epoch, claimed = max(claim.epoch, known.epoch), max(claim.claimed, known.claimed)
            self._set(producer_id, Claim(epoch, max(claim.used_us, known.used_us, used_us), claimed))

    def __len__(self) -> int:
        return len(self._claims)

    def _set(self, producer_id: str, claim: Claim) -> None:
        # Popped and put back so that the dict stays in order of use.
        if self._claims.pop(producer_id, None) is None:
            self._taken.add(producer_id)
        self._claims[producer_id] = claim

    def _forget(self, producer_ids: list[str]) -> int:
        for producer_id in producer_ids:
            claim = self._claims.pop(producer_id)
            self._taken.add(producer_id, -1)
            self._floor = max(self._floor, claim.claimed)
        return len(producer_ids)
