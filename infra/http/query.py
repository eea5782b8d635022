"""What a request says beside its body: its query, and the names in it and in its path."""

from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.infra.errors import problem
from siltlog.infra.limits import INTEGER_MAX, whole_number


class Asked(Protocol):
    """A request as ASGI tells of it."""

    @property
    def scope(self) -> MutableMapping[str, Any]: ...


def named(parameter: str, text: str) -> str:
    """The name of something, as a parameter gives it. Raises Refused `invalid_parameter`."""
    wrong = names.name_problem(text)
    if wrong is not None:
        raise problem("invalid_parameter", f"{parameter}: {wrong}", parameter=parameter)
    return text


class Query:
    """The query of a request. Raises Refused `invalid_parameter` that names the parameter."""

    def __init__(self, request: Asked, allowed: Iterable[str]) -> None:
        self._values: dict[str, str] = {}
        if not (text := request.scope["query_string"]):
            return
        known = frozenset(allowed)
        try:
            pairs = parse_qsl(text.decode("utf-8"), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise problem(
                "invalid_parameter", "the query is not UTF-8; send bytes that are no text as base64", parameter=""
            ) from None
        for name, value in pairs:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise problem(
                    "invalid_parameter",
                    f"there is no parameter {name[:80]!r} here; there are: {there}",
                    parameter=name[:80],
                )
            if name in self._values:
                raise problem("invalid_parameter", f"the parameter {name} is given twice; give it once", parameter=name)
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def items(self) -> Iterable[tuple[str, str]]:
        """The parameters by name."""
        return sorted(self._values.items())

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def integer(
        self, name: str, default: int, *, minimum: int = 0, maximum: int = INTEGER_MAX, cut: bool = False
    ) -> int:
        """A whole number in [minimum, maximum]; with `cut` one above the maximum becomes the maximum."""
        text = self._values.get(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None or number < minimum or (number > maximum and not cut):
            raise problem(
                "invalid_parameter",
                f"{name} must be a whole number from {minimum} to {maximum}, not {text[:80]!r}",
                parameter=name,
            )
        return min(number, maximum)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._values.get(name, default)
        if value not in choices:
            raise problem(
                "invalid_parameter",
                f"{name} must be one of {', '.join(choices)}, not {value[:80]!r}",
                parameter=name,
            )
        return value

    def time_us(self, name: str) -> int | None:
        """Microseconds; Refused `invalid_request` (422) where it is no time."""
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return parse_us(text)
        except ValueError as error:
            raise problem("invalid_request", f"{name}: {error}") from None
