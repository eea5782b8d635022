"""Attempts, dead letters and their way back, over HTTP."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.replay import Replay, ReplayRequest
from siltlog.consumers.groups.http import OTHERS_MEMBER
from siltlog.consumers.groups.messages import Actor, AttemptRequest, CountRequest, DeadLetterRequest
from siltlog.consumers.reading.fetch import require_read
from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Whole
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import GROUP, IN_BODY, TOPIC, begin_change, json_answer, json_body, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.security.grant import grant_of

BODY_BYTES_MAX = 8 * 1024 * 1024

_attempt_decoder = msgspec.json.Decoder(CountRequest)
_dead_letter_decoder = msgspec.json.Decoder(DeadLetterRequest)
_replay_decoder = msgspec.json.Decoder(ReplayRequest)


class Attempts(msgspec.Struct, omit_defaults=True):
    attempts: Whole
    spent: Annotated[bool | None, Meta(description="Only with `attempts_max`: it had as many before, give it up")] = (
        None
    )


class DeadLetter(msgspec.Struct):
    topic: Annotated[str, Meta(description="The topic of the dead letters")]
    partition: Whole
    offset: Annotated[Whole | None, Meta(description="Of the dead letter; null: it was there before, and is not known")]
    attempts: Whole
    duplicate: Annotated[bool, Meta(description="It was there before")]


class Replayed(msgspec.Struct):
    topic: str
    replay_id: str
    replayed: Annotated[Whole, Meta(description="Dead letters that went back now")]
    duplicates: Annotated[Whole, Meta(description="Those that this replay had brought back before")]


_BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_acceptable")
_AWAY = (
    "coordinator_unavailable",
    "shutting_down",
    "topic_unavailable",
    "store_denied",
    "overloaded",
    "wal_full",
    "disk_full",
)
_RECORD_ERRORS = ("fenced_member", "unknown_topic", "unknown_partition", "offset_out_of_range")
_READ_ERRORS = ("corrupt_data", "ack_timeout")
_RECORD = {"member_id": "a", "generation": 1763710560000, "topic": "flights", "partition": 0, "offset": 7}


class DeadLettersHttp:
    def __init__(self, dead_letters: DeadLetters, replay: Replay) -> None:
        self._dead_letters = dead_letters
        self._replay = replay

    @operation(
        "POST",
        "/v1/groups/{group}/attempts",
        "countAttempt",
        "Groups",
        "Count an attempt at a record",
        "Before the record is handled, so that one that ends its consumer is counted too. Only by the member that "
        "holds the partition. The count goes once the group has committed beyond the record. `attempts_max` is for a "
        "record that a former holder may have ended with: one that ends two holders has ended the first uncounted, and "
        "that is counted too; with as many attempts as that it is `spent`, and not counted.",
        access=IN_BODY,
        needs=f"group `read` and `read` of the topic; {OTHERS_MEMBER}",
        replies={200: json_answer("How many attempts there were, with this one.", Attempts)},
        parameters=(GROUP,),
        body=json_body(CountRequest, _RECORD),
        errors=("coordinator_unavailable", "shutting_down", *_BODY_ERRORS, *_RECORD_ERRORS),
    )
    async def attempt(self, request: Request) -> Response:
        group = _asked(request, "group")
        body = decode(await body_of(request, BODY_BYTES_MAX), _attempt_decoder)
        found = await self._dead_letters.attempt(group, body, body.attempts_max, _actor(request, group, body))
        return json_reply(Attempts(found.attempts, None if body.attempts_max is None else found.spent))

    @operation(
        "POST",
        "/v1/groups/{group}/dead_letters",
        "giveUpRecord",
        "Groups",
        "Give up a record",
        "Copies it to `{topic}.dlq`, to the partition it is in, with headers that say where it was and why; then "
        "commits the offset after it. A repeat is answered, and not copied again. Refused while the same member has "
        "attempts at lower records that are not committed.",
        access=IN_BODY,
        needs=f"group `read` and `read` of the topic; {OTHERS_MEMBER}",
        replies={200: json_answer("Where the dead letter is.", DeadLetter)},
        parameters=(GROUP,),
        body=json_body(DeadLetterRequest, {**_RECORD, "error": "ValueError: no such carrier"}),
        errors=(*_AWAY, *_BODY_ERRORS, *_RECORD_ERRORS, *_READ_ERRORS, "records_open", "not_found"),
    )
    async def bury(self, request: Request) -> Response:
        group = _asked(request, "group")
        body = decode(await body_of(request, BODY_BYTES_MAX), _dead_letter_decoder)
        buried = await self._dead_letters.bury(group, body, _actor(request, group, body))
        return json_reply(DeadLetter(buried.topic, buried.partition, buried.offset, buried.attempts, buried.duplicate))

    @operation(
        "POST",
        "/v1/topics/{topic}/dlq/replay",
        "replayDeadLetters",
        "Topics",
        "Bring dead letters back",
        "Publishes them to `topic`, from which they came, as they were: key, value, headers, time and partition. Each "
        "once for a `replay_id`, which stands for one request: repeated it brings what is missing. `offsets` are those "
        "of the dead letters; left out: every one.",
        access=IN_BODY,
        at_owner="yes",
        needs="`read` of `{topic}.dlq` and `write` of the topic",
        changes="in_body",
        replies={200: json_answer("How many.", Replayed)},
        parameters=(TOPIC,),
        body=json_body(ReplayRequest, {"replay_id": "2026-11-21", "offsets": [{"partition": 0, "offset": 3}]}),
        errors=(
            *("shutting_down", "topic_unavailable", "store_denied", "overloaded", "wal_full", "disk_full"),
            *_BODY_ERRORS,
            *("unknown_topic", "unknown_partition", "offset_out_of_range", *_READ_ERRORS),
            *("not_found", "idempotency_key_reused", "record_too_large", "invalid_record"),
        ),
    )
    async def replay(self, request: Request) -> Response:
        topic = _asked(request, "topic")
        grant = grant_of(request)
        grant.require("read", "topic", names.dead_letter_topic(topic))
        grant.require("write", "topic", topic)
        body = decode(await body_of(request, BODY_BYTES_MAX), _replay_decoder)
        await begin_change(request, "topic", topic)
        done = await self._replay.replay(topic, body)
        return json_reply(Replayed(topic, body.replay_id, done.replayed, done.duplicates))


def _actor(request: Request, group: str, at: AttemptRequest) -> Actor | None:
    """Raises Refused `forbidden` to who may not be a member, or not read the topic."""
    grant = grant_of(request)
    grant.require("read", "group", group)
    require_read(grant, at.topic)
    return Actor.of(grant, group)


def _asked(request: Request, parameter: str) -> str:
    """The name in the path of a call that takes no query and is answered in JSON."""
    Query(request, ())
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    name: str = request.path_params[parameter]
    wrong = names.name_problem(name)
    if parameter == "group" and wrong is not None:
        raise problem("invalid_parameter", f"{parameter}: {wrong}", parameter=parameter)
    return name
