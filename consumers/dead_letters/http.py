"""Attempts, dead letters and what becomes of them, over HTTP."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.dead_letters.discard import Discard, DiscardRequest
from siltlog.consumers.dead_letters.letters import Buried, DeadLetters
from siltlog.consumers.dead_letters.listing import DeadLetterList
from siltlog.consumers.dead_letters.replay import Replay, ReplayRequest
from siltlog.consumers.groups.members_http import OTHERS_MEMBER
from siltlog.consumers.groups.messages import Actor, AttemptRequest, CountRequest, DeadLetterRequest, NackRequest
from siltlog.consumers.reading.answers import Record
from siltlog.consumers.reading.fetch import require_read
from siltlog.consumers.reading.parameters import VALUES_PARAMETER, values_of
from siltlog.infra import names
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import (
    GROUP,
    IN_BODY,
    MEMBER,
    TOPIC,
    begin_change,
    cut,
    in_query,
    json_answer,
    json_body,
    on_topic,
    operation,
)
from siltlog.infra.http.query import Query, named
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.security.grant import grant_of

BODY_BYTES_MAX = 8 * 1024 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000

_attempt_decoder = msgspec.json.Decoder(CountRequest)
_dead_letter_decoder = msgspec.json.Decoder(DeadLetterRequest)
_nack_decoder = msgspec.json.Decoder(NackRequest)
_replay_decoder = msgspec.json.Decoder(ReplayRequest)
_discard_decoder = msgspec.json.Decoder(DiscardRequest)
_JSON = msgspec.json.Encoder()


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


class Nacked(msgspec.Struct):
    attempts: Annotated[Whole, Meta(description="With this one")]
    rest_ms: Annotated[
        Whole | None, Meta(description="For how long polls leave the partition out; null: the record was given up")
    ]
    dead_letter: Annotated[DeadLetter | None, Meta(description="Null: the record is delivered again")]


class Replayed(msgspec.Struct):
    topic: str
    replay_id: str
    replayed: Annotated[Whole, Meta(description="Dead letters that went back now")]
    duplicates: Annotated[Whole, Meta(description="Those that this replay had brought back before")]


class Failure(msgspec.Struct):
    """Where a dead letter came from, and why it was given up."""

    topic: str
    partition: Whole
    offset: Whole
    timestamp: Annotated[Time, Meta(description="Of the record that it was")]
    group: str
    attempts: Whole
    error: str
    failed_at: Time


class ListedLetter(Record, kw_only=True):
    dead_letter: Annotated[
        Failure | None, Meta(description="What the last headers say; null: they are not those of a dead letter")
    ]


class ListedLetters(msgspec.Struct):
    topic: str
    dead_letters: list[ListedLetter]
    count: Annotated[Whole, Meta(description="How many there are now, of all groups")]
    next: Annotated[str | None, Meta(description="Give it as `after` for what follows; null: nothing does")]


class LogStart(msgspec.Struct):
    partition: Whole
    log_start_offset: Whole


class DiscardedLetters(msgspec.Struct):
    topic: str
    discarded: Annotated[Whole, Meta(description="Dead letters that are hidden from now on")]
    duplicates: Annotated[Whole, Meta(description="Those that were discarded, or deleted, before")]
    partitions: Annotated[list[LogStart], Meta(description="Those that were named, and where `{topic}.dlq` begins now")]


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
    def __init__(self, dead_letters: DeadLetters, replay: Replay, letters: DeadLetterList, discard: Discard) -> None:
        self._dead_letters = dead_letters
        self._replay = replay
        self._letters = letters
        self._discard = discard

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
        return json_reply(_letter(buried))

    @operation(
        "POST",
        "/v1/groups/{group}/members/{member}/nack",
        "nack",
        "Groups",
        "Say that a record could not be handled",
        "Counts an attempt. Below `max_attempts` the record is delivered again: polls of the group leave its partition "
        "out for `backoff_ms`, twice as long after each further attempt, at most `backoff_ms_max`; then they go on "
        "from the committed offset, so commit what was handled before it. Said again meanwhile it is counted once. At "
        "`max_attempts` it is given up, as by `dead_letters`, and the group goes on behind it.",
        access=IN_BODY,
        needs=f"group `read` and `read` of the topic; {OTHERS_MEMBER}",
        replies={200: json_answer("What becomes of the record.", Nacked)},
        parameters=(GROUP, MEMBER),
        body=json_body(
            NackRequest,
            {
                **{name: _RECORD[name] for name in _RECORD if name != "member_id"},
                "error": "ValueError: no such carrier",
            },
        ),
        errors=(*_AWAY, *_BODY_ERRORS, *_RECORD_ERRORS, *_READ_ERRORS, "records_open", "not_found"),
    )
    async def nack(self, request: Request) -> Response:
        group, member = _asked(request, "group"), _asked(request, "member")
        body = decode(await body_of(request, BODY_BYTES_MAX), _nack_decoder)
        record, backoff_ms = body.record(member), (body.backoff_ms, body.backoff_ms_max)
        actor = _actor(request, group, record)
        nacked = await self._dead_letters.nack(group, record, body.max_attempts, actor, backoff_ms)
        if nacked.buried is not None:
            return json_reply(Nacked(nacked.attempts, None, _letter(nacked.buried)))
        return json_reply(Nacked(nacked.attempts, nacked.rest_ms, None))

    @operation(
        "POST",
        "/v1/topics/{topic}/dlq/replay",
        "replayDeadLetters",
        "Topics",
        "Bring dead letters back",
        "Publishes them to `topic`, from which they came, as they were: key, value, headers, time and partition. Each "
        "once for a `replay_id`, which stands for one request: repeated it brings what is missing. `offsets` are those "
        "of the dead letters; left out: every one that was not discarded.",
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

    @operation(
        "GET",
        "/v1/topics/{topic}/dlq",
        "listDeadLetters",
        "Topics",
        "List dead letters, the newest first",
        "Each as a read of `{topic}.dlq` gives it, with what its headers say about it. Those that were discarded are "
        "left out. Newest is what was given up last; in one partition that is the order of offsets. A page may have "
        "fewer than `limit` and be followed by others. None where the topic never had any.",
        access=on_topic("read"),
        needs="`read` of `{topic}.dlq`",
        reads=True,
        replies={200: json_answer("Dead letters.", ListedLetters)},
        parameters=(
            TOPIC,
            in_query("group", "Only what this group gave up."),
            in_query("after", "Only what follows this place: the last reply's `next`."),
            in_query("limit", f"How many at most; more than {LIMIT_MAX:,} is cut.", cut(1, LIMIT_DEFAULT)),
            VALUES_PARAMETER,
        ),
        errors=("unknown_topic", "not_acceptable", "corrupt_data", "topic_unavailable", "store_denied"),
    )
    async def list(self, request: Request) -> Response:
        query = Query(request, ("group", "after", "limit", "values"))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        topic: str = request.path_params["topic"]
        require_read(grant_of(request), names.dead_letter_topic(topic))
        group = named("group", query.text("group")) if "group" in query else None
        after = query.text("after") if "after" in query else None
        limit = query.integer("limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX, cut=True)
        values = values_of(query)
        page = await self._letters.page(topic, group, after, limit, values)
        document = {"topic": topic, "dead_letters": page.letters, "count": page.letters_all, "next": page.following}
        return await read_reply(request, [_JSON.encode(document)], names.MEDIA_JSON, {})

    @operation(
        "POST",
        "/v1/topics/{topic}/dlq/discard",
        "discardDeadLetters",
        "Topics",
        "Discard dead letters",
        "They are listed and brought back no more. A record without key and value in `{topic}.dlq` says so, with "
        "`reason`, in the headers `silt.discarded`, `silt.partition` and `silt.reason`; who reads that topic itself "
        "sees it. Its log start follows where the lowest are discarded, as if the records below had been deleted; "
        "where that cannot be done now, the next call does it. `offsets` each name a dead letter, `ranges` all that "
        "there are from `first_offset` to `last_offset`. All are looked at before any is discarded. A repeat changes "
        "nothing.",
        access=on_topic("delete"),
        at_owner="yes",
        changes="in_body",
        replies={200: json_answer("How many.", DiscardedLetters)},
        parameters=(TOPIC,),
        body=json_body(
            DiscardRequest,
            {
                "offsets": [{"partition": 0, "offset": 3}],
                "ranges": [{"partition": 1, "first_offset": 0, "last_offset": 9}],
                "reason": "test payments",
            },
        ),
        errors=(
            *("shutting_down", "topic_unavailable", "store_denied", "overloaded", "wal_full", "disk_full"),
            *_BODY_ERRORS,
            *("unknown_topic", "unknown_partition", "offset_out_of_range", *_READ_ERRORS, "not_found"),
        ),
    )
    async def discard(self, request: Request) -> Response:
        topic = _asked(request, "topic")
        body = decode(await body_of(request, BODY_BYTES_MAX), _discard_decoder)
        told = f"discard {len(body.offsets)} dead letters and {len(body.ranges)} ranges: {body.reason}"
        await begin_change(request, "topic", topic, told)
        done = await self._discard.discard(topic, body)
        starts = [LogStart(partition, start) for partition, start in done.log_starts.items()]
        return json_reply(DiscardedLetters(topic, done.discarded, done.duplicates, starts))


def _letter(buried: Buried) -> DeadLetter:
    return DeadLetter(buried.topic, buried.partition, buried.offset, buried.attempts, buried.duplicate)


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
    return named(parameter, name) if parameter in ("group", "member") else name
