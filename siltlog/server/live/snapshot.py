"""A snapshot of all nodes, and what of it may be seen by whom. Pure: made on a thread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from siltlog.server.job_log import JobRun
from siltlog.server.live import answers
from siltlog.server.live.answers import GroupLag, GroupRow, Kind, NodeState, RunningJob, TopicRow
from siltlog.server.live.part import Attention, LagPart, NodePart, Sums, TopicPart, sums_of

TOPICS_SHOWN = 200
GROUPS_SHOWN = 200
GROUPS_OF_TOPIC = 5
ATTENTION_SHOWN = 100
P95 = 0.95
FAILED = ("failed", "found_wrong")


class Sees(NamedTuple):
    """A set of rights: the topics and groups that may be described, where not all may, and whether the cluster."""

    topics: frozenset[str] | None
    groups: frozenset[str] | None
    cluster: bool

    def topic(self, name: str) -> bool:
        return self.topics is None or name in self.topics

    def group(self, name: str) -> bool:
        return self.groups is None or name in self.groups

    def attention(self, one: Attention) -> bool:
        if one.of == "topic":
            return self.topic(one.subject)
        return self.group(one.subject) if one.of == "group" else self.cluster


ALL = Sees(None, None, cluster=True)


class Snapshot(NamedTuple):
    time: str
    here: NodePart
    others: Sequence[NodePart]
    nodes: Sequence[NodeState]
    silent: Sequence[str]
    groups: Sequence[str]
    """The names of all groups; those that have no lag among them."""
    running: Sequence[RunningJob] = ()
    latest: Sequence[JobRun] = ()

    @property
    def parts(self) -> Sequence[NodePart]:
        return (self.here, *self.others)

    def topic_names(self) -> list[str]:
        return [topic.name for part in self.parts for topic in part.topics]

    def lags(self) -> Sequence[LagPart]:
        return next((part.lags for part in self.parts if part.lags), ())


class Seen:
    """What of a snapshot a set of rights sees."""

    def __init__(self, snapshot: Snapshot, sees: Sees) -> None:
        self._snapshot = snapshot
        self._sees = sees
        self._topics = [topic for part in snapshot.parts for topic in part.topics if sees.topic(topic.name)]
        self._lags = [lag for lag in snapshot.lags() if sees.group(lag.group) and sees.topic(lag.topic)]
        self._groups = [group for group in snapshot.groups if sees.group(group)]
        self._sums = self._summed()

    def _summed(self) -> Sums:
        if self._sees.topics is not None:
            return sums_of(self._topics)
        total = Sums()
        for part in self._snapshot.parts:
            total = total + part.sums
        return total

    def document(self, kind: Kind, states: Mapping[str, tuple[str, int]]) -> object:
        """Gives the data of an event; `states` has (state, members) of groups by name."""
        make: Mapping[Kind, Callable[[], object]] = {
            "overview": self._overview,
            "topics": self._shown_topics,
            "groups": lambda: self._shown_groups(states),
            "jobs": self._jobs,
        }
        return make[kind]()

    def worst_groups(self) -> list[str]:
        """Names the groups that are shown: those that are furthest behind."""
        seconds: dict[str, tuple[float, int]] = {}
        for lag in self._lags:
            worst, records = seconds.get(lag.group, (0.0, 0))
            seconds[lag.group] = max(worst, lag.seconds), records + lag.records
        order = sorted(self._groups, key=lambda name: (*(-one for one in seconds.get(name, (0.0, 0))), name))
        return order[:GROUPS_SHOWN]

    def _overview(self) -> answers.Overview:
        snapshot, sums, cluster = self._snapshot, self._sums, self._sees.cluster
        here = snapshot.here
        waits = [part.ack_p99_ms for part in snapshot.parts if part.ack_p99_ms is not None]
        worst = max(self._lags, key=lambda lag: (lag.seconds, lag.records), default=None)
        return answers.Overview(
            time=snapshot.time,
            node=here.node if cluster else "",
            version=here.version,
            started_at=here.started_at if cluster else None,
            ready=not here.reasons,
            reasons=here.reasons if cluster else [],
            nodes=list(snapshot.nodes) if cluster else [],
            silent=list(snapshot.silent) if cluster else [],
            rates=answers.Rates(
                *(round(one, 3) for one in (sums.records_in, sums.bytes_in, sums.records_out, sums.bytes_out))
            ),
            ack_p99_ms=max(waits) if waits and cluster else None,
            table_lag_p95_s=_p95([topic.table_lag_s for topic in self._topics if topic.table_lag_s]),
            worst_lag=None
            if worst is None or not worst.records
            else answers.WorstLag(worst.group, worst.topic, worst.records, round(worst.seconds, 3)),
            wal=here.wal if cluster else None,
            disk=here.disk if cluster else None,
            totals=answers.Totals(
                sums.topics,
                len(self._groups),
                sum(part.connections for part in snapshot.parts) if cluster else None,
                sums.records,
                sums.bytes,
            ),
            attention=self._attention(),
        )

    def _attention(self) -> list[Attention]:
        found = [one for part in self._snapshot.parts for one in part.attention]
        found += (
            Attention("job_failed", "error", run.job, f"{run.ended_at}: {run.error or run.outcome}")
            for run in self._snapshot.latest
            if run.outcome in FAILED
        )
        found += (
            Attention("node_silent", "error", name, "it did not answer within a second")
            for name in self._snapshot.silent
        )
        seen = [one for one in found if self._sees.attention(one)]
        return sorted(seen, key=lambda one: (one.severity != "error", one.kind, one.subject))[:ATTENTION_SHOWN]

    def _shown_topics(self) -> answers.Topics:
        shown = sorted(self._topics, key=lambda topic: (*(-one for one in topic.busy), topic.name))[:TOPICS_SHOWN]
        wanted = {topic.name for topic in shown}
        lags: dict[str, list[LagPart]] = {}
        for lag in self._lags:
            if lag.topic in wanted:
                lags.setdefault(lag.topic, []).append(lag)
        of = self._sums.topics
        return answers.Topics(
            self._snapshot.time, [_row(topic, lags.get(topic.name, ())) for topic in shown], of, len(shown) < of
        )

    def _shown_groups(self, states: Mapping[str, tuple[str, int]]) -> answers.Groups:
        shown = self.worst_groups()
        lags: dict[str, list[LagPart]] = {name: [] for name in shown}
        for lag in self._lags:
            if lag.group in lags:
                lags[lag.group].append(lag)
        rows = [_group(name, of, states.get(name)) for name, of in lags.items()]
        return answers.Groups(self._snapshot.time, rows, len(self._groups), len(rows) < len(self._groups))

    def _jobs(self) -> answers.Jobs:
        snapshot = self._snapshot
        if not self._sees.cluster:
            return answers.Jobs(snapshot.time, [], [])
        return answers.Jobs(snapshot.time, list(snapshot.running), list(snapshot.latest))


def _row(topic: TopicPart, lags: Iterable[LagPart]) -> TopicRow:
    worst = sorted(lags, key=lambda lag: (-lag.seconds, -lag.records, lag.group))[:GROUPS_OF_TOPIC]
    return TopicRow(
        name=topic.name,
        partitions=topic.partitions,
        records=topic.records,
        bytes=topic.bytes,
        files=topic.files,
        records_in_per_s=topic.records_in,
        bytes_in_per_s=topic.bytes_in,
        records_out_per_s=topic.records_out,
        bytes_out_per_s=topic.bytes_out,
        groups=[GroupLag(lag.group, lag.records, round(lag.seconds, 3)) for lag in worst],
        table_lag_s=round(topic.table_lag_s, 3),
        small_files_share=round(topic.small_files / topic.files, 4) if topic.files else None,
    )


def _group(name: str, lags: Sequence[LagPart], state: tuple[str, int] | None) -> GroupRow:
    stability, members = (None, 0) if state is None else state
    seconds = round(max(lag.seconds for lag in lags), 3) if lags else None
    topics = sorted({lag.topic for lag in lags})
    return GroupRow(name, stability, members, topics, sum(lag.records for lag in lags), seconds)


def _p95(values: list[float]) -> float:
    return round(sorted(values)[int(P95 * (len(values) - 1))], 3) if values else 0.0
