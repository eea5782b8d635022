"""Attempts, dead letters and their way back, over HTTP."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.replay import Replay, ReplayRequest
from siltlog.consumers.groups.messages import CountRequest, DeadLetterRequest
from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.requests import Query, body_of, decode, json_reply

BODY_BYTES_MAX = 8 * 1024 * 1024

_attempt_decoder = msgspec.json.Decoder(CountRequest)
_dead_letter_decoder = msgspec.json.Decoder(DeadLetterRequest)
_replay_decoder = msgspec.json.Decoder(ReplayRequest)


class DeadLettersHttp:
    def __init__(self, dead_letters: DeadLetters, replay: Replay) -> None:
        self._dead_letters = dead_letters
        self._replay = replay

    def routes(self) -> list[Route]:
        return [
            Route("/v1/groups/{group}/attempts", self.attempt, methods=["POST"]),
            Route("/v1/groups/{group}/dead_letters", self.bury, methods=["POST"]),
            Route("/v1/topics/{topic}/dlq/replay", self.replay, methods=["POST"]),
        ]

    async def attempt(self, request: Request) -> Response:
        group = _asked(request, "group")
        body = decode(await body_of(request, BODY_BYTES_MAX), _attempt_decoder)
        found = await self._dead_letters.attempt(group, body, body.attempts_max)
        document = {"attempts": found.attempts}
        return json_reply(document if body.attempts_max is None else {**document, "spent": found.spent})

    async def bury(self, request: Request) -> Response:
        group = _asked(request, "group")
        body = decode(await body_of(request, BODY_BYTES_MAX), _dead_letter_decoder)
        buried = await self._dead_letters.bury(group, body)
        return json_reply(
            {
                "topic": buried.topic,
                "partition": buried.partition,
                "offset": buried.offset,
                "attempts": buried.attempts,
                "duplicate": buried.duplicate,
            }
        )

    async def replay(self, request: Request) -> Response:
        topic = _asked(request, "topic")
        body = decode(await body_of(request, BODY_BYTES_MAX), _replay_decoder)
        done = await self._replay.replay(topic, body)
        return json_reply(
            {"topic": topic, "replay_id": body.replay_id, "replayed": done.replayed, "duplicates": done.duplicates}
        )


def _asked(request: Request, parameter: str) -> str:
    """The name in the path of a call that takes no query and is answered in JSON."""
    Query(request, ())
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    name: str = request.path_params[parameter]
    wrong = names.name_problem(name)
    if parameter == "group" and wrong is not None:
        raise problem("invalid_parameter", f"{parameter}: {wrong}", parameter=parameter)
    return name
