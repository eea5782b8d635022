"""The reply to a publish: where its records are."""

from typing import Any

from siltlog.infra.http.requests import JsonReply
from siltlog.ingest.publish.publishing import Published


def publish_reply(published: Published) -> JsonReply:
    """Gives every record's partition and offset, in the order of the request, where its format has records."""
    appended, given = published.appended, published.acks != "none"
    partitions = [
        {
            "partition": ack.partition,
            "first_offset": ack.first_offset if given else None,
            "last_offset": ack.last_offset if given else None,
            "count": ack.count,
            "duplicate": ack.duplicate,
        }
        for ack in appended.acks
    ]
    document: dict[str, Any] = {"topic": published.topic.name, "acks": published.acks, "partitions": partitions}
    if published.body.positions:
        if given:
            document["records"] = appended.positions()
        else:
            document["records"] = appended.split.positions({ack.partition: None for ack in appended.acks})
    return JsonReply(document, 200 if given else 202)
