"""Activity of a log between two looks at it: counts in, rates out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siltlog.infra.store import costs
from siltlog.infra.store.costs import Asked

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """The answers of a server at one time, in seconds of a clock that only goes forward."""

    seconds: float
    topics: Sequence[Document]
    """Topics in the form of `GET /v1/topics`."""
    groups: Sequence[Document]
    """Groups, each in the form of `GET /v1/groups/{group}`."""
    asked: Asked | None = None
    """Requests of the server to its object store; None where it does not tell."""


def topic_rows(before: Look | None, now: Look) -> list[dict[str, Any]]:
    """A row a topic, the busiest first: records a second, and how many of its records no table has yet.

    Rates are None at the first look, and of a topic that was created since.
    """
    known = {} if before is None else {topic["topic_id"]: topic for topic in before.topics}
    rows = [
        {
            "topic": topic["name"],
            "records_per_second": _rate(_end(topic) - _end(known[topic["topic_id"]]), before, now)
            if topic["topic_id"] in known
            else None,
            "records": topic["records"],
            "bytes": topic["bytes"],
            "files": topic["files"],
            "behind_table": _end(topic) - sum(part["table_offset"] for part in topic["offsets"]),
        }
        for topic in now.topics
    ]
    return sorted(rows, key=lambda row: (-(row["records_per_second"] or 0), row["topic"]))


def group_rows(before: Look | None, now: Look) -> list[dict[str, Any]]:
    """A row a group, the furthest behind first: records a second that it committed, and its lag.

    Rates are None as those of topics; a group that was set back has a negative one.
    """
    known = {} if before is None else {group["group"]: group for group in before.groups}
    rows = [
        {
            "group": group["group"],
            "state": group["state"],
            "members": len(group["members"]),
            "records_per_second": _rate(_committed(group) - _committed(known[group["group"]]), before, now)
            if group["group"] in known
            else None,
            "lag": sum(part["lag"] for part in group["partitions"]),
            "lag_seconds": max((part["lag_seconds"] or 0 for part in group["partitions"]), default=0),
        }
        for group in now.groups
    ]
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


def cost_of(before: Look | None, now: Look) -> dict[str, Any]:
    """Tells what the present rate of requests and the tables' files cost a month on S3, in dollars.

    Requests are None as rates are, and where the server does not tell them or was started since.
    """
    rate = None
    if before is not None and before.asked is not None and now.asked is not None:
        rate = now.asked.per_second(before.asked, now.seconds - before.seconds)
    return {
        "writes_per_second": None if rate is None else round(rate.writes, 2),
        "reads_per_second": None if rate is None else round(rate.reads, 2),
        "requests_dollars_per_month": None if rate is None else round(costs.month_of(rate), 2),
        "storage_dollars_per_month": round(costs.stored_month(sum(topic["bytes"] for topic in now.topics)), 2),
    }


def _end(topic: Document) -> int:
    return sum(part["high_watermark"] for part in topic["offsets"])


def _committed(group: Document) -> int:
    return sum(part["offset"] or 0 for part in group["partitions"])


def _rate(more: int, before: Look | None, now: Look) -> float | None:
    passed = now.seconds - before.seconds if before is not None else 0.0
    return round(more / passed, 1) if passed > 0 else None
