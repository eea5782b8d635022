"""What a consumer says of a server that does not serve it: by itself it only goes on trying."""

import logging

from siltlog.infra.errors import SiltlogError

_log = logging.getLogger("siltlog.consumer")


def warn_of_retries(error: SiltlogError) -> None:
    """Of what failed twice in a row: whoever polls meanwhile gets nothing, and is to know why."""
    _log.warning("%s; trying on", error)
