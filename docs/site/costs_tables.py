"""The tables of docs/costs.md, made of what the code reckons with: `python -m docs.site.costs_tables`."""

from collections.abc import Iterable, Sequence

from siltlog.infra.store import costs
from siltlog.infra.store.costs import Requests, flush, flush_rate, month_of

GB = 2**30
MIB = 2**20


def tables() -> list[str]:
    return [asked(), gigabyte(), flushes(), always(), budgets()]


def asked() -> str:
    """What is asked of S3 for each thing."""
    things = (
        ("a flush: for each partition that has something", costs.FILE),
        ("a flush: the commit, and its share of checkpoints", costs.COMMIT),
        ("an object of `acks=object`", costs.JOURNAL_OBJECT),
        ("a heartbeat of a node of a cluster", costs.BEAT),
        ("a server, each second", costs.IDLE_NODE),
        ("a topic, each second, idle or not", costs.IDLE_TOPIC),
    )
    rows = [(name, f"{one.writes:g}", f"{one.reads:g}", f"{one.dollars * 1e6:.2f}") for name, one in things]
    return _table(("", "PUT, LIST", "GET, HEAD", "dollars for a million"), rows)


def gigabyte() -> str:
    """The requests of a gigabyte, when one comes each second."""
    rows = []
    for partitions, nbytes in ((16, 16), (16, 64), (64, 16), (64, 1)):
        rate = flush_rate(GB, partitions, 1.0, nbytes * MIB)
        rows.append((str(partitions), f"{nbytes} MiB", f"{rate.writes:.1f}", f"{rate.reads:.1f}", _cents(rate.dollars)))
    return _table(("partitions", "`flush.bytes`", "PUT, LIST", "GET, HEAD", "dollars a gigabyte"), rows)


def flushes() -> str:
    """What one topic that always gets a little costs a month by how often it is flushed."""
    rows = []
    for seconds in (0.25, 1, 5, 10, 60, 300):
        by_partitions = [
            _dollars(month_of(Requests().plus(flush(partitions), 1 / seconds))) for partitions in (1, 4, 16)
        ]
        rows.append((f"{seconds:g} s", *by_partitions))
    return _table(("a flush each", "1 partition", "4 partitions", "16 partitions"), rows)


def always() -> str:
    """What is asked whether anything is published or not."""
    rows = [
        ("a server", _dollars(month_of(costs.IDLE_NODE))),
        ("each topic", _dollars(month_of(costs.IDLE_TOPIC))),
        # A file for the minutes each time, and one for the hour each sixth time.
        (
            "the history of metrics, `_metrics`, its topic included",
            _dollars(month_of(costs.IDLE_TOPIC.plus(flush(1 + 1 / 6), 1 / 600))),
        ),
        ("a node's heartbeats, each 1.5 s", _dollars(month_of(Requests().plus(costs.BEAT, 1 / 1.5)))),
        ("`acks=object`, each 200 ms", _dollars(month_of(Requests().plus(costs.JOURNAL_OBJECT, 5)))),
        ("`acks=object`, each second", _dollars(month_of(costs.JOURNAL_OBJECT))),
    ]
    return _table(("", "a month"), rows)


def budgets() -> str:
    """How old tables get by the budget and the number of busy topics, of one partition each."""
    rows = []
    for dollars in (10, 50, 200):
        rate = dollars / costs.SECONDS_PER_MONTH
        ages = [f"{min(topics * flush(1).dollars / rate, 300):.3g} s" for topics in (1, 10, 100)]
        rows.append((f"`SILT_REQUESTS_BUDGET={dollars}`", *ages))
    return _table(("", "1 busy topic", "10", "100"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _cents(amount: float) -> str:
    return f"${amount:.5f}"


if __name__ == "__main__":
    print("\n\n".join(tables()))
