"""`/v1/metrics/history`: what metrics were."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.clock import MICROS_PER_SECOND, Clock, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import FILTERED, TEXT, TIME, choice, cut, in_query, json_answer, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.server.history.history import Past, grid_of
from siltlog.server.history.kept import GROUP, KEPT, TOPIC
from siltlog.server.history.others import Histories, Of, Wanted, put_together
from siltlog.server.history.sampling import Series
from siltlog.server.history.series_rings import HOUR_SECONDS, MONTH_SECONDS

NAMES = tuple(kept.metric.name for kept in KEPT)
_NAME = f"({'|'.join(NAMES)})"
_SERIES = {"type": "string", "pattern": f"^{_NAME}(,{_NAME})*$"}
VALUES_MAX = 200_000
DECIMALS = 6


NODE = "node"
OF_ALL, OF_THIS = "all", "this"
_PARAMETERS = ("series", TOPIC, GROUP, "from", "to", "step_ms", "nodes", "by")


class HistorySeries(msgspec.Struct):
    """`values` are per second for counters, and null where nothing was measured."""

    name: Annotated[str, Meta(description="A metric of docs/metrics.md")]
    labels: Annotated[
        dict[str, str],
        Meta(description="`topic`, `group` or `quantile`, with `by=node` also `node`; without the first it is of all"),
    ]
    values: list[float | None]


class SilentNode(msgspec.Struct):
    node: str
    reason: str


class MetricsHistory(msgspec.Struct):
    """A value at each of `times` is of the `step_ms` that follow."""

    node: Annotated[str, Meta(description="Who was asked")]
    complete: Annotated[bool, Meta(description="Every node that was asked has answered within a second")]
    nodes: Annotated[list[str], Meta(description="The nodes that this is of; for cluster `describe`")]
    silent: Annotated[list[SilentNode], Meta(description="Those that did not answer, and why; for cluster `describe`")]
    step_ms: Whole
    times: list[Time]
    series: Annotated[list[HistorySeries], Meta(description="Those of which anything was measured")]


class HistoryHttp:
    def __init__(self, histories: Histories, clock: Clock) -> None:
        self._histories = histories
        self._clock = clock

    @operation(
        "GET",
        "/v1/metrics/history",
        "metricsHistory",
        "Node",
        "What metrics were",
        "The last hour every ten seconds, the last day every minute, 30 days every hour; in a cluster of all nodes "
        "together: rates and amounts add up, of quantiles and lags the highest counts, and what is 1 while all is well "
        "is the lowest. A counter is shown by its rise a second, a histogram by `quantile` 0.5 and 0.99 of what was "
        "observed in a step. Series of the 200 topics and the 200 groups that are busiest have a label; those without "
        "are of all. Steps that are folded into a longer one become their mean; lags and quantiles their highest.",
        access=FILTERED,
        needs="for series of a topic or group its `describe`, for all others, for the names of nodes and for `by=node` "
        "cluster `describe`",
        replies={200: json_answer("The series.", MetricsHistory)},
        parameters=(
            in_query("series", f"Names of metrics, with commas: {', '.join(NAMES)}.", _SERIES, NAMES[0], required=True),
            in_query(TOPIC, "Only series of this topic.", TEXT),
            in_query(GROUP, "Only series of this group.", TEXT),
            in_query("from", "The first time, of the last 30 days; an hour before `to`.", TIME),
            in_query("to", "The time before which it ends; now.", TIME),
            in_query("step_ms", "At least so long is a step; by default 360 of them fill the time.", cut(1, 0)),
            in_query("nodes", "Of all nodes of a cluster, or of the one that is asked.", choice(OF_ALL, OF_THIS)),
            in_query("by", "Series of each node, with its name as a label.", choice(NODE)),
        ),
        errors=("not_acceptable", "not_found", "invalid_request", "forbidden"),
    )
    async def history(self, request: Request) -> Response:
        query = Query(request, _PARAMETERS)
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        grant = grant_of(request)
        by_node = "by" in query and query.choice("by", (NODE,), NODE) == NODE
        if by_node:
            grant.require("describe", "cluster")
        wanted = self._wanted(query)
        if query.choice("nodes", (OF_ALL, OF_THIS), OF_ALL) == OF_ALL:
            parts, silent = await self._histories.of_all(wanted)
        else:
            parts, silent = [await self._histories.of_this(wanted)], []
        names_nodes = grant.may("describe", "cluster")
        seen = _seen_by(grant)

        def told() -> MetricsHistory:
            found = [_seen(part, seen) for part in parts]
            series = _told_by_node(found) if by_node else _told(put_together(found))
            return MetricsHistory(
                self._histories.node,
                not silent,
                [part.node for part in parts] if names_nodes else [],
                [SilentNode(each.node, each.reason) for each in silent] if names_nodes else [],
                wanted.step_seconds * 1000,
                _times(wanted),
                series,
            )

        return await asyncio.to_thread(lambda: json_reply(told()))

    def _wanted(self, query: Query) -> Wanted:
        wanted = _names(query)
        now_seconds = -(-self._clock.now_us() // MICROS_PER_SECOND)
        to_us, from_us = query.time_us("to"), query.time_us("from")
        to_seconds = now_seconds if to_us is None else min(-(-to_us // MICROS_PER_SECOND), now_seconds)
        from_seconds = to_seconds - HOUR_SECONDS if from_us is None else from_us // MICROS_PER_SECOND
        if from_seconds > to_seconds:
            raise problem("invalid_request", "from is after to, or has not come yet")
        from_seconds = max(from_seconds, now_seconds - MONTH_SECONDS)
        step_ms = query.integer("step_ms", 0, minimum=1, maximum=MONTH_SECONDS * 1000, cut=True)
        labels = tuple((label, query.text(label)) for label in (TOPIC, GROUP) if label in query)
        grid = grid_of(from_seconds, max(to_seconds, from_seconds), now_seconds, -(-step_ms // 1000))
        return Wanted(tuple(sorted(wanted)), labels, *grid)


def _seen(part: Of, seen: Callable[[Series], bool]) -> Of:
    """What a caller may see of it."""
    past = part.past
    kept = [at for at, series in enumerate(past.series) if seen(series)]
    return Of(part.node, past._replace(series=[past.series[at] for at in kept], values=past.values[kept]))


def _names(query: Query) -> frozenset[str]:
    wanted = frozenset(name for name in query.text("series").split(",") if name)
    unknown = sorted(wanted - set(NAMES))
    if unknown or not wanted:
        said = f"{unknown[0][:80]!r} has no history" if unknown else "it names no metric"
        raise problem("invalid_parameter", f"series: {said}; there are: {', '.join(NAMES)}", parameter="series")
    return wanted


def _seen_by(grant: Grant) -> Callable[[Series], bool]:
    whole_node = grant.may("describe", "cluster")
    by_label: dict[str, Callable[[str], bool] | None] = {TOPIC: grant.filter("topic"), GROUP: grant.filter("group")}

    def seen(series: Series) -> bool:
        if series.label not in by_label:
            return whole_node
        may = by_label[series.label]
        return may is None or may(series.value)

    return seen


def _times(wanted: Wanted) -> list[str]:
    steps = range(wanted.steps)
    return [format_us((wanted.first_seconds + step * wanted.step_seconds) * MICROS_PER_SECOND) for step in steps]


def _told_by_node(parts: Sequence[Of]) -> list[HistorySeries]:
    _check_size(sum(part.past.values.size for part in parts))
    return [one for part in parts for one in _told(part.past, {NODE: part.node})]


def _told(past: Past, of_node: Mapping[str, str] = MappingProxyType({})) -> list[HistorySeries]:
    """Raises Refused `invalid_request` where it is too much for a reply."""
    _check_size(past.values.size)
    values = np.round(past.values.astype(np.float64), DECIMALS)
    return [
        HistorySeries(
            one.name,
            {**({one.label: one.value} if one.label else {}), **of_node},
            [None if value != value else value for value in row.tolist()],
        )
        for one, row in zip(past.series, values, strict=True)
    ]


def _check_size(values: int) -> None:
    if values > VALUES_MAX:
        raise problem(
            "invalid_request",
            f"this would be {values:,} values, of at most {VALUES_MAX:,}: ask for fewer series, one topic or group, a "
            "shorter time or a longer step_ms",
        )
