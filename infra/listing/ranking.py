"""Lists in the order of a value, a page at a time. The cursor has the value and the name of the last that was shown."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from siltlog.infra.errors import SiltlogError, problem

NAME = "name"
Order = Literal["asc", "desc"]
ORDERS: tuple[Order, ...] = ("asc", "desc")
TOPIC_SORTS = (NAME, "records", "bytes", "files", "rate", "lag")
GROUP_SORTS = (NAME, "lag", "members")
TURN = 256
"""So many names are looked at before others get their turn."""


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    sort: str
    order: Order
    value: float
    name: str


_decoder = msgspec.json.Decoder(_Cursor)


class Page(NamedTuple):
    names: Sequence[str]
    next: str | None


class Ranking(NamedTuple):
    """An order by a value; what has the same value is in the order of names."""

    sort: str
    order: Order

    async def page(
        self,
        values: Mapping[str, float],
        *,
        prefix: str,
        after: str,
        limit: int,
        visible: Callable[[str], bool] | None,
    ) -> Page:
        """Gives up to `limit` names that begin with `prefix` and are `visible`, after what a cursor names.

        Pages neither repeat nor skip what keeps its value. Raises Refused `invalid_parameter` for a cursor of another
        order. `visible` is called on the event loop, of a few names at a time.
        """
        self.check(after)
        names = await asyncio.to_thread(self.names, values, prefix, after)
        found: list[str] = []
        for done, name in enumerate(names, 1):
            if visible is None or visible(name):
                found.append(name)
                if len(found) > limit:
                    break
            if done % TURN == 0:
                await asyncio.sleep(0)
        shown = found[:limit]
        return Page(shown, self.cursor(values[shown[-1]], shown[-1]) if len(found) > limit else None)

    def check(self, after: str) -> None:
        """Raises Refused `invalid_parameter` for a cursor of another order."""
        if after:
            self._place(after)

    def names(self, values: Mapping[str, float], prefix: str, after: str) -> list[str]:
        """Gives all names that begin with `prefix`, in order, after what a cursor names. Raises as `check`."""
        place = None if not after else self._place(after)
        named = [name for name in values if name.startswith(prefix)]
        if self.sort == NAME:
            if place is not None:
                named = [name for name in named if (name < place.name if self.order == "desc" else name > place.name)]
            return sorted(named, reverse=self.order == "desc")
        sign = -1 if self.order == "desc" else 1
        ranked: Iterable[tuple[float, str]] = ((sign * values[name], name) for name in named)
        if place is not None:
            last = (sign * place.value, place.name)
            ranked = (one for one in ranked if one > last)
        return [name for _, name in sorted(ranked)]

    def cursor(self, value: float, name: str) -> str:
        text = msgspec.json.encode(_Cursor(self.sort, self.order, value, name))
        return base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    def _place(self, text: str) -> _Cursor:
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            place = _decoder.decode(data)
        except (binascii.Error, ValueError, msgspec.DecodeError):
            raise _not_of_this_order() from None
        if (place.sort, place.order) != self:
            raise _not_of_this_order()
        return place


def by_name(names: Iterable[str]) -> dict[str, float]:
    """Values of what is in the order of names alone."""
    return dict.fromkeys(names, 0.0)


def ranking_of(choice: Callable[[str, tuple[str, ...], str], str], sorts: tuple[str, ...]) -> Ranking:
    """Reads an order from a query, by its `choice`: names rise unless it says otherwise, values fall."""
    sort = choice("sort", sorts, NAME)
    order: Any = choice("order", ORDERS, "asc" if sort == NAME else "desc")
    return Ranking(sort, order)


def _not_of_this_order() -> SiltlogError:
    return problem(
        "invalid_parameter",
        "after is not what the last reply gave as its next for this sort and order; send that, or leave it out",
        parameter="after",
    )
