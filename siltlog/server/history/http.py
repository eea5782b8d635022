"""`/v1/metrics/history`: what metrics were."""

import asyncio
from collections.abc import Callable
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
from siltlog.infra.http.operations import FILTERED, TEXT, TIME, cut, in_query, json_answer, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.server.history.history import DAY_SECONDS, HOUR_SECONDS, History, Past
from siltlog.server.history.kept import GROUP, KEPT, TOPIC
from siltlog.server.history.sampling import Series

NAMES = tuple(kept.metric.name for kept in KEPT)
_NAME = f"({'|'.join(NAMES)})"
_SERIES = {"type": "string", "pattern": f"^{_NAME}(,{_NAME})*$"}
VALUES_MAX = 200_000
DECIMALS = 6


class HistorySeries(msgspec.Struct):
    """`values` are per second for counters, and null where nothing was measured."""

    name: Annotated[str, Meta(description="A metric of docs/metrics.md")]
    labels: Annotated[
        dict[str, str],
        Meta(description="`topic`, `group` or `quantile`; without one it is of the whole node"),
    ]
    values: list[float | None]


class MetricsHistory(msgspec.Struct):
    """A value at each of `times` is of the `step_ms` that follow."""

    node: str
    step_ms: Whole
    times: list[Time]
    series: list[HistorySeries]


class HistoryHttp:
    def __init__(self, history: History | None, node_id: str, clock: Clock) -> None:
        """Without a history none is kept."""
        self._history = history
        self._node_id = node_id
        self._clock = clock

    @operation(
        "GET",
        "/v1/metrics/history",
        "metricsHistory",
        "Node",
        "What metrics were",
        "Of this node since its start: the last hour every ten seconds, the last day every minute. A counter is shown "
        "by its rise a second, a histogram by `quantile` 0.5 and 0.99 of what was observed in a step. Series of "
        "the 200 topics and the 200 groups that are busiest have a label; those without are of all. Steps that are "
        "folded into a longer one become their mean; lags and quantiles their highest.",
        access=FILTERED,
        needs="for series of a topic or group its `describe`, for all others cluster `describe`",
        replies={200: json_answer("The series.", MetricsHistory)},
        parameters=(
            in_query("series", f"Names of metrics, with commas: {', '.join(NAMES)}.", _SERIES, NAMES[0], required=True),
            in_query("topic", "Only series of this topic.", TEXT),
            in_query("group", "Only series of this group.", TEXT),
            in_query("from", "The first time; an hour before `to`.", TIME),
            in_query("to", "The time before which it ends; now.", TIME),
            in_query("step_ms", "At least so long is a step; by default 360 of them fill the time.", cut(1, 0)),
        ),
        errors=("not_acceptable", "not_found", "invalid_request"),
    )
    async def history(self, request: Request) -> Response:
        query = Query(request, ("series", "topic", "group", "from", "to", "step_ms"))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        if self._history is None:
            raise problem("not_found", "this server keeps no history of its metrics: SILT_METRICS_HISTORY=off")
        past = self._asked(self._history, query, grant_of(request))
        return await asyncio.to_thread(lambda: json_reply(_told(self._node_id, past)))

    def _asked(self, history: History, query: Query, grant: Grant) -> Past:
        wanted = _names(query)
        now_seconds = -(-self._clock.now_us() // MICROS_PER_SECOND)
        to_us, from_us = query.time_us("to"), query.time_us("from")
        to_seconds = now_seconds if to_us is None else min(-(-to_us // MICROS_PER_SECOND), now_seconds)
        from_seconds = to_seconds - HOUR_SECONDS if from_us is None else from_us // MICROS_PER_SECOND
        if from_seconds > to_seconds:
            raise problem("invalid_request", "from is after to, or has not come yet")
        from_seconds = max(from_seconds, now_seconds - DAY_SECONDS)
        step_ms = query.integer("step_ms", 0, minimum=1, maximum=DAY_SECONDS * 1000, cut=True)
        of = [(label, query.text(label)) for label in (TOPIC, GROUP) if label in query]

        may_see = _seen_by(grant)

        def seen(series: Series) -> bool:
            return (not of or (series.label, series.value) in of) and may_see(series)

        past = history.past(wanted, seen, from_seconds, max(to_seconds, from_seconds), -(-step_ms // 1000))
        if past.values.size > VALUES_MAX:
            raise problem(
                "invalid_request",
                f"this would be {past.values.size:,} values, of at most {VALUES_MAX:,}: ask for fewer series, one "
                "topic or group, a shorter time or a longer step_ms",
            )
        return past


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


def _told(node_id: str, past: Past) -> MetricsHistory:
    values = np.round(past.values.astype(np.float64), DECIMALS)
    first_us, step_us = (seconds * MICROS_PER_SECOND for seconds in (past.first_seconds, past.step_seconds))
    return MetricsHistory(
        node_id,
        past.step_seconds * 1000,
        [format_us(first_us + step * step_us) for step in range(values.shape[1])],
        [
            HistorySeries(
                one.name,
                {one.label: one.value} if one.label else {},
                [None if value != value else value for value in row.tolist()],
            )
            for one, row in zip(past.series, values, strict=True)
        ],
    )
