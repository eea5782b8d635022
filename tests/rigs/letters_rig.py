"""Topics with records, and a member of a group that gives them up."""

import time
from typing import Any

from http_rig import Http, Reply

PATIENCE_S = 60


class Member:
    """One that has joined `group` and holds the whole topic."""

    def __init__(self, http: Http, group: str, topic: str, member: str = "a") -> None:
        self.http, self.group, self.topic, self.member = http, group, topic, member
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = http.json("PUT", f"/v1/groups/{group}/members/{member}", {"topics": [topic]})
            if told.status != 503 or time.monotonic() > deadline:
                break
            # A cluster that has just begun gives groups a node first.
            time.sleep(0.1)
        assert told.status == 200, told
        self.generation = told.json["generation"]
        self.assignment = told.json["assignment"]

    def call(self, what: str, offset: int, partition: int = 0, **fields: Any) -> Reply:
        named = {"member_id": self.member, "generation": self.generation, "topic": self.topic, "partition": partition}
        return self.http.json("POST", f"/v1/groups/{self.group}/{what}", {**named, "offset": offset, **fields})

    def attempt(self, offset: int, partition: int = 0) -> int:
        reply = self.call("attempts", offset, partition)
        assert reply.status == 200, reply
        attempts: int = reply.json["attempts"]
        return attempts

    def bury(self, offset: int, partition: int = 0, error: str = "ValueError: no") -> dict[str, Any]:
        reply = self.call("dead_letters", offset, partition, error=error)
        assert reply.status == 200, reply
        document: dict[str, Any] = reply.json
        return document

    def nack(self, offset: int, **fields: Any) -> Reply:
        record = {"generation": self.generation, "topic": self.topic, "partition": 0, "offset": offset}
        return self.http.json("POST", f"/v1/groups/{self.group}/members/{self.member}/nack", {**record, **fields})

    def commit(self, offset: int, partition: int = 0) -> None:
        offsets = [{"topic": self.topic, "partition": partition, "offset": offset}]
        body = {"member_id": self.member, "generation": self.generation, "offsets": offsets}
        assert self.http.json("PUT", f"/v1/groups/{self.group}/offsets", body).status == 204

    def leave(self) -> None:
        assert self.http.call("DELETE", f"/v1/groups/{self.group}/members/{self.member}").status == 204


def filled(http: Http, topic: str, partitions: int = 1, records: int = 6) -> None:
    http.create(topic, partitions)
    for partition in range(partitions):
        rows = [
            {
                "key": f"k{number}",
                "value": f"{partition}:{number}",
                "partition": partition,
                "headers": [{"key": "silt.topic", "value": "mine"}] if number % 2 else [],
                "timestamp": 1_700_000_000_000 + number,
            }
            for number in range(records)
        ]
        assert http.publish(topic, *rows).status == 200
