"""Cron expressions, in UTC."""

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from siltlog.infra.clock import MICROS_PER_SECOND

_SECOND = timedelta(seconds=1)
_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)


class Cron:
    """Five fields (minute, hour, day of month, month, day of week) as cron(8) of Debian reads them, all in UTC.

    A sixth in front of them is the second.
    """

    def __init__(self, expression: str) -> None:
        """Raises ValueError with a sentence for who wrote it; also where it names no time of the next 50 years."""
        self.expression = expression
        try:
            found = next(CronSim(expression, _ANY_TIME), None)
        except (CronSimError, ValueError) as error:
            raise ValueError(
                f"it is not a cron expression, such as '5 3 * * *' (every day at 03:05 UTC): {error}"
            ) from None
        if found is None:
            raise ValueError("it names no time at all, such as '5 3 * * *' would (every day at 03:05 UTC)")

    def latest_us(self, now_us: int) -> int | None:
        """The last time at or before `now_us`; microseconds."""
        return _micros(next(CronSim(self.expression, _second(now_us) + _SECOND, reverse=True), None))

    def next_us(self, now_us: int) -> int | None:
        """The first time after `now_us`; microseconds."""
        return _micros(next(CronSim(self.expression, _second(now_us)), None))


def _second(now_us: int) -> datetime:
    return datetime.fromtimestamp(now_us // MICROS_PER_SECOND, UTC)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp()) * MICROS_PER_SECOND
