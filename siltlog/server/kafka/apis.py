"""The requests of one connection of Kafka: read, given to the handler of their API, and what that says written."""

import asyncio
import math
from collections.abc import Awaitable, Mapping, MutableMapping
from typing import Any

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.memory import Held
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.frames import APIS, UnsupportedVersion, decode_request, response_pieces
from siltlog.infra.kafka.wire import Malformed, TooMany
from siltlog.server.kafka.call import Answer, Call, Handler, Waited
from siltlog.server.kafka.connection import Ended, Later, Pieces
from siltlog.server.kafka.incoming import Frame
from siltlog.server.kafka.session import Session

PRODUCE, FETCH, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 1, 18, 17, 36
_LOGIN = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""What is answered before a login, and of no quota."""
INLINE_ELEMENTS_MAX = 1_000
"""Messages whose arrays have more elements are read and written on a thread."""
_CHARGED_BY_HANDLER = (*_LOGIN, PRODUCE, FETCH)


class Counts:
    """How many requests there were of each API, and answers with an error. Used on one event loop."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.errors: dict[tuple[str, str], int] = {}

    def asked(self, api: str) -> None:
        self.requests[api] = self.requests.get(api, 0) + 1

    def failed(self, api: str, error: str) -> None:
        """Counts an error of an API, or of what is none (`frame`): then the connection ended."""
        self.errors[api, error] = self.errors.get((api, error), 0) + 1


class Apis:
    """Answers the requests of one connection."""

    def __init__(self, session: Session, handlers: Mapping[int, Handler], counts: Counts) -> None:
        """`handlers` has that of each API which is served, but those by which a client finds out and logs in."""
        self._session = session
        self._handlers: MutableMapping[int, Handler] = {API_VERSIONS: self._api_versions, **handlers}
        if session.mechanisms:
            self._handlers |= {SASL_HANDSHAKE: self._sasl_handshake, SASL_AUTHENTICATE: self._sasl_authenticate}
        self._counts = counts

    async def begin(self, frame: Frame, held: Held) -> Pieces | Later | None:
        if self._session.awaits_token:
            return await self._bare_token(frame)
        # Nothing more of a stranger's frame is read than what it is for.
        if self._session.grant is None and int.from_bytes(frame[:2]) not in _LOGIN:
            await self._session.failed()
            raise Ended("unauthenticated")
        try:
            try:
                request = decode_request(frame, INLINE_ELEMENTS_MAX)
            except TooMany:
                request = await asyncio.to_thread(decode_request, frame)
        except UnsupportedVersion as error:
            return self._too_new(error)
        except Malformed:
            raise Ended("malformed") from None
        key, version, correlation_id = request.api_key, request.api_version, request.correlation_id
        handler = self._handlers.get(key)
        if handler is None:
            raise Ended("unknown_api")
        session = self._session
        self._counts.asked(APIS[key].name)
        if key not in _CHARGED_BY_HANDLER:
            # Some of them are of nothing to which there is a right.
            session.check()
            await session.charged()
        answer = await handler(Call(version, request.body, session, held, request.client_id or ""))
        if isinstance(answer, Waited):
            return Later(self._written(key, version, correlation_id, answer.fields))
        return await self._pieces(key, version, correlation_id, answer)

    def end(self) -> None:
        self._session.fetches.close()

    async def _written(
        self, key: int, version: int, correlation_id: int, fields: Awaitable[Mapping[str, Any] | None]
    ) -> Pieces | None:
        return await self._pieces(key, version, correlation_id, await fields)

    async def _pieces(self, key: int, version: int, correlation_id: int, answer: Answer) -> Pieces | None:
        assert not isinstance(answer, Waited)
        if answer is None:
            return None
        pieces: Pieces
        codes = _codes(answer, INLINE_ELEMENTS_MAX)
        if codes is None:
            codes, pieces = await asyncio.to_thread(_written, key, version, correlation_id, answer)
        else:
            pieces = response_pieces(key, version, correlation_id, answer)
        for code in codes or ():
            if code:
                self._counts.failed(APIS[key].name, KafkaError(code).name)
        return pieces

    def _too_new(self, error: UnsupportedVersion) -> Pieces:
        """Tells whoever asks in a newer version what there is, in the words of the first; of all else that is the
        end, as with Kafka's brokers."""
        if error.api_key != API_VERSIONS:
            raise Ended("unknown_api" if error.api_key not in self._handlers else "unknown_version")
        self._counts.failed(APIS[API_VERSIONS].name, KafkaError.UNSUPPORTED_VERSION.name)
        return response_pieces(API_VERSIONS, 0, error.correlation_id, self._served(KafkaError.UNSUPPORTED_VERSION))

    async def _api_versions(self, call: Call) -> Answer:
        return self._served(KafkaError.NONE)

    def _served(self, error: KafkaError) -> Mapping[str, Any]:
        served = (APIS[key] for key in sorted(self._handlers))
        return {
            "error_code": error,
            "api_keys": [
                {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version} for api in served
            ],
        }

    async def _sasl_handshake(self, call: Call) -> Answer:
        taken = self._session.begin_login(call.body["mechanism"])
        self._session.awaits_token = taken and call.version == 0
        if not taken:
            await self._session.failed()
        error = KafkaError.NONE if taken else KafkaError.UNSUPPORTED_SASL_MECHANISM
        return {"error_code": error, "mechanisms": list(self._session.mechanisms)}

    async def _sasl_authenticate(self, call: Call) -> Answer:
        if not self._session.mechanism:
            await self._session.failed()
            sentence = "a login begins with SaslHandshake, which says by which mechanism"
            return {"error_code": KafkaError.ILLEGAL_SASL_STATE, "error_message": sentence, "auth_bytes": b""}
        try:
            told = await self._session.login(bytes(call.body["auth_bytes"]))
        except SiltlogError as error:
            return {
                "error_code": KafkaError.SASL_AUTHENTICATION_FAILED,
                "error_message": error.detail,
                "auth_bytes": b"",
            }
        return {
            "error_code": KafkaError.NONE,
            "error_message": None,
            "auth_bytes": told,
            "session_lifetime_ms": 0 if told else self._session.lifetime_ms(),
        }

    async def _bare_token(self, frame: Frame) -> Pieces:
        try:
            told = await self._session.login(bytes(frame))
        except SiltlogError:
            raise Ended("unauthenticated") from None
        self._session.awaits_token = bool(told)
        return [told]


def _written(key: int, version: int, correlation_id: int, answer: Mapping[str, Any]) -> tuple[set[int] | None, Pieces]:
    return _codes(answer), response_pieces(key, version, correlation_id, answer)


def _codes(answer: Mapping[str, Any], elements_max: float = math.inf) -> set[int] | None:
    """The error codes that an answer has, wherever they are in it; None where its lists have more elements in all."""
    found: set[int] = set()
    elements = 0
    waiting: list[Mapping[str, Any]] = [answer]
    while waiting:
        for name, value in waiting.pop().items():
            if name == "error_code":
                found.add(value)
            elif type(value) is list and value:
                elements += len(value)
                if elements > elements_max:
                    return None
                if isinstance(value[0], dict):
                    waiting += value
    return found
