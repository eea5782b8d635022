"""Records made of a run, handed out one by one; the position follows."""

from siltlog.consumers.positions import Positions, Run
from siltlog.consumers.record import ConsumerRecord, records_of

CHUNK_RECORDS = 500
"""How many records an iteration makes of Arrow rows at a time."""


class Chunk:
    __slots__ = ("_positions", "_run", "left", "next", "records", "state")

    def __init__(self, run: Run, positions: Positions) -> None:
        self._run = run
        self._positions = positions
        self.state = run.state
        self.records = records_of(run.state.at.topic, run.state.at.partition, run.rows)
        self.next = 0
        self.left = len(self.records)

    def hand_out(self) -> ConsumerRecord:
        record = self.records[self.next]
        self.next += 1
        self.left -= 1
        if self.left:
            self.state.position = record.offset + 1
        else:
            self._positions.handed_out(self._run)
        return record

    def give_back(self) -> None:
        """What was not handed out."""
        if self.left:
            rows = self._run.rows.slice(self.next)
            nbytes = self._run.nbytes * self.left // len(self.records)
            self._positions.give_back(self._run._replace(rows=rows, nbytes=nbytes))
            self.left = 0


def records_in(run: Run) -> list[ConsumerRecord]:
    return records_of(run.state.at.topic, run.state.at.partition, run.rows)
