"""What metrics were on all nodes of a cluster: the one that is asked asks the others, and puts it together."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.router import Member
from siltlog.infra.errors import problem
from siltlog.infra.http.requests import body_of, decode
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.server.history.history import POINTS_MAX, Grid, History, Past
from siltlog.server.history.kept import KEPT
from siltlog.server.history.ring import Values
from siltlog.server.history.sampling import QUANTILE, Series
from siltlog.server.history.series_rings import SERIES_MAX

PATH = "/peers/history"
ANSWER_SECONDS = 1.0
BODY_BYTES_MAX = 64 * 1024
_MEDIA = "application/msgpack"
_AMONG = {kept.metric.name: kept.among for kept in KEPT}
_FOLDS: Mapping[str, Callable[..., Values]] = {"sum": np.nansum, "max": np.nanmax, "min": np.nanmin}


class Wanted(msgspec.Struct, frozen=True):
    """Series of these metrics on these steps; where `labels` names some, of those alone."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    first_seconds: int
    step_seconds: int
    steps: int

    @property
    def grid(self) -> Grid:
        return Grid(self.first_seconds, self.step_seconds, self.steps)

    def asks_for(self, series: Series) -> bool:
        return not self.labels or (series.label, series.value) in self.labels


class _Told(msgspec.Struct, frozen=True):
    """`values` are floats of 32 bits, little-endian: a row of `steps` of them for each series."""

    series: tuple[Series, ...]
    values: bytes


class Of(NamedTuple):
    """What one node tells, and which."""

    node: str
    past: Past


class Silent(msgspec.Struct):
    node: str
    reason: str


_wanted = msgspec.json.Decoder(Wanted)
_told = msgspec.msgpack.Decoder(_Told)
_encode = msgspec.msgpack.encode


class Others:
    """The other nodes of a cluster. Used on one event loop."""

    def __init__(
        self, peers: Peers, member: Callable[[str], Member | None], names: Callable[[], Iterable[str]]
    ) -> None:
        """`names()` are those of all nodes of the newest view, and `member(name)` is one that is not away."""
        self._peers = peers
        self._member = member
        self._names = names

    async def ask(self, wanted: Wanted, this: str) -> tuple[list[Of], list[Silent]]:
        """What the others have, and who did not answer in time."""
        names = sorted(set(self._names()) - {this})
        content = msgspec.json.encode(wanted)
        told = await asyncio.gather(*(self._ask(name, wanted, content) for name in names))
        return [each for each in told if isinstance(each, Of)], [each for each in told if isinstance(each, Silent)]

    async def _ask(self, name: str, wanted: Wanted, content: bytes) -> Of | Silent:
        member = self._member(name)
        if member is None:
            return Silent(name, "it is away")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await self._peers.ask(
                    member, "POST", PATH.encode(), (), content, identity=NODE, seconds=ANSWER_SECONDS, repeats=True
                )
        except TimeoutError:
            return Silent(name, f"it has not answered within {ANSWER_SECONDS:g} s")
        except (ConnectionFailed, PeerRefused) as failed:
            return Silent(name, str(failed))
        if reply.status != 200:
            return Silent(name, _reason(reply.status, reply.body))
        try:
            return Of(name, await asyncio.to_thread(_past, wanted, reply.body))
        except (msgspec.DecodeError, ValueError):
            return Silent(name, "its answer cannot be read: it may be of another release")


class Histories:
    """The history of this node, and those of the others. Used on one event loop."""

    def __init__(self, history: History | None, node: str, others: Others | None) -> None:
        """Takes the node to be alone without `others`."""
        self.history = history
        self.node = node
        self._others = others
        self.calls: Mapping[str, PeerCall] = {PATH: self._hear}

    async def of_all(self, wanted: Wanted) -> tuple[list[Of], list[Silent]]:
        """What each node has, this one's first, and who did not answer in time."""
        if self._others is None:
            return [await self.of_this(wanted)], []
        mine, (others, silent) = await asyncio.gather(self.of_this(wanted), self._others.ask(wanted, self.node))
        return [mine, *others], silent

    async def of_this(self, wanted: Wanted) -> Of:
        """Raises Refused `not_found` where no history is kept."""
        if self.history is None:
            raise problem("not_found", "this server keeps no history of its metrics: SILT_METRICS_HISTORY=off")
        return Of(self.node, await self.history.past(wanted.names, wanted.asks_for, wanted.grid))

    async def _hear(self, request: Request) -> Response:
        wanted = decode(await body_of(request, BODY_BYTES_MAX), _wanted)
        if not 0 < wanted.steps <= POINTS_MAX + 2 or wanted.step_seconds <= 0:
            raise problem("invalid_request", f"{wanted.steps} steps of {wanted.step_seconds} s are not told")
        past = (await self.of_this(wanted)).past
        return Response(await asyncio.to_thread(_encoded, past), media_type=_MEDIA)


def _encoded(past: Past) -> bytes:
    return _encode(_Told(tuple(past.series), past.values.astype("<f4").tobytes()))


def _past(wanted: Wanted, body: bytes) -> Past:
    """Raises DecodeError, ValueError."""
    told = _told.decode(body)
    if len(told.series) > SERIES_MAX:
        raise ValueError(f"{len(told.series)} series")
    values = np.frombuffer(told.values, "<f4").reshape(len(told.series), wanted.steps).astype(np.float32)
    return Past(wanted.first_seconds, wanted.step_seconds, told.series, values)


def _reason(status: int, body: bytes) -> str:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = None
    detail = document.get("detail") if isinstance(document, dict) else None
    return str(detail) if detail else f"it answered with {status}"


def put_together(parts: Sequence[Of]) -> Past:
    """One series for those of all nodes that say the same: rates and amounts add up, of quantiles and ages the highest
    counts, and what is 1 while all is well is 1 while it is on all of them."""
    first = parts[0].past
    rows: dict[Series, list[Values]] = {}
    for part in parts:
        for series, values in zip(part.past.series, part.past.values, strict=True):
            rows.setdefault(series, []).append(values)
    ordered = sorted(rows)
    steps = first.values.shape[1]
    out = np.full((len(ordered), steps), np.nan, np.float32)
    for at, series in enumerate(ordered):
        out[at] = _folded(series, rows[series])
    return Past(first.first_seconds, first.step_seconds, ordered, out)


def _folded(series: Series, rows: Sequence[Values]) -> Values:
    if len(rows) == 1:
        return rows[0]
    each = np.vstack(rows)
    there = ~np.isnan(each).all(axis=0)
    found = np.full(each.shape[1], np.nan, np.float32)
    how = "max" if series.label == QUANTILE else _AMONG[series.name]
    found[there] = _FOLDS[how](each[:, there], axis=0)
    return found
