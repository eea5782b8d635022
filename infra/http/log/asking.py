"""What log lines say of the request on whose account they are written."""

from collections.abc import Mapping
from typing import Any

from siltlog.infra import names
from siltlog.infra.http.log.access_log import LOCAL_ADDRESS
from siltlog.infra.http.requests import OPERATION, WAIT_MS
from siltlog.infra.http.streams import STREAM
from siltlog.infra.security.grant import GRANT, Grant
from siltlog.infra.telemetry import REQUEST

ERROR_CODE = "error_code"
"""Where a request's state says by which code it was refused."""


class Asking:
    """A request while it is under way; a task that it began and that outlives it writes on nobody's account."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope: Mapping[str, Any] | None = scope
        REQUEST.set(self)

    def __call__(self) -> dict[str, Any]:
        if self._scope is None:
            return {}
        state = self._scope["state"]
        fields = {"request_id": state["request_id"]}
        grant: Grant | None = state.get(GRANT)
        if grant is not None and grant.identity is not None:
            fields["principal"] = grant.identity.subject.principal
        if OPERATION in state:
            fields["operation"] = state[OPERATION]
        topic = self._scope.get("path_params", {}).get("topic")
        if topic is not None:
            # Whoever asks may say more, and each line would have all of it.
            fields["topic"] = topic[: names.TOPIC_CHARS_MAX]
        return fields

    def end(self) -> None:
        self._scope = None


def own_seconds(seconds: float, state: Mapping[str, Any]) -> float:
    """Returns how long a request took without what it asked to wait; a stream goes on as long as its reader likes."""
    wait_ms: int = state.get(WAIT_MS, 0)
    return 0.0 if STREAM in state else seconds - wait_ms / 1000


def told(scope: Mapping[str, Any], headers: Mapping[bytes, bytes], address: str) -> dict[str, Any]:
    """Returns what the access log says of a request besides how it ended."""
    said = {"method": scope["method"], "path": scope["raw_path"], "address": address or LOCAL_ADDRESS}
    length = headers.get(b"content-length", b"")
    # Of a body in pieces only its handler knows how many bytes they were.
    if length.isdigit() or b"transfer-encoding" not in headers:
        said["bytes_in"] = int(length or 0)
    if ERROR_CODE in scope["state"]:
        said["error_code"] = scope["state"][ERROR_CODE]
    return said
