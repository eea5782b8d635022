"""A player by kcat: it answers each line of JSON that it is asked with one, and calls kcat for what it is asked."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

READ_SECONDS_MAX = 30
POLL_SECONDS = 0.2
BOOTSTRAP = sys.argv[1]
LOGIN = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
ERRORS = {
    "Broker: Message size too large": "MESSAGE_TOO_LARGE",
    "Broker: Unknown topic or partition": "UNKNOWN_TOPIC_OR_PARTITION",
}


class Refused(Exception):
    """What kcat says of an error."""


def kcat(*arguments: str) -> list[str]:
    settings = {}
    if LOGIN:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": LOGIN["ca"],
            "sasl.mechanisms": "PLAIN",
            "sasl.username": LOGIN["user"],
            "sasl.password": LOGIN["password"],
        }
    named = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return ["kcat", "-b", BOOTSTRAP, *named, *arguments]


def run(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        kcat(*arguments), input=given, capture_output=True, text=True, timeout=READ_SECONDS_MAX, check=False
    )
    for said, name in ERRORS.items():
        if said in done.stderr:
            raise Refused(name)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def told(line: str) -> dict[str, Any]:
    record = json.loads(line)
    names = record.get("headers", [])
    headers = [list(pair) for pair in zip(names[::2], names[1::2], strict=True)]
    return {name: record[name] for name in ("partition", "offset")} | {
        "key": record["key"],
        "value": record["payload"],
        "headers": headers,
    }


def produce(topic: str, codec: str, records: list[dict[str, Any]]) -> None:
    """Calls it once for the records that have the same headers and the same partition."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        bare = record["key"] is None, record["value"] is None, record["partition"], record["headers"]
        alike.setdefault(json.dumps(bare), []).append(record)
    for said, same in alike.items():
        no_key, no_value, partition, headers = json.loads(said)
        lines = [f"{record['key']}\t{record['value'] or ''}" for record in same]
        if no_key:
            lines = [record["value"] or "" for record in same]
        options = ["-z", codec, "-p", str(partition)]
        options += ["-X", "enable.idempotence=true", "-X", "topic.metadata.propagation.max.ms=1000"]
        options += [] if no_key else ["-K", "\t"]
        options += ["-Z"] if no_value else []
        for name, value in headers:
            options += ["-H", f"{name}={value}"]
        run("-P", "-t", topic, *options, given="\n".join(lines) + "\n")


def read(topic: str, partitions: int, count: int) -> dict[str, Any]:
    lines = run("-C", "-q", "-e", "-J", "-t", topic, "-o", "beginning").splitlines()
    return {"records": list(map(told, lines))}


class Member:
    def __init__(self, group: str, topic: str) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 9_000,
            "fetch.wait.max.ms": 200,
            "auto.commit.interval.ms": 100,
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        self.process = subprocess.Popen(
            kcat("-J", "-u", *options, "-G", group, topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.records: list[dict[str, Any]] = []
        self.held: list[int] = []
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._reads, self._hears)]
        for thread in self.threads:
            thread.start()

    def _reads(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.append(told(line))

    def _hears(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "assigned: " in line:
                self.held = [int(number) for number in re.findall(r"\[(\d+)\]", line.split("assigned: ")[1])]
            elif "revoked: " in line:
                self.held = []
            else:
                sys.stderr.write(line)

    def poll(self) -> dict[str, Any]:
        time.sleep(POLL_SECONDS)
        count = len(self.records)
        records, self.records[:count] = self.records[:count], []
        return {"records": records, "held": self.held}

    def leave(self) -> None:
        """It commits what it has told."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


MEMBERS: dict[str, Member] = {}


def do(asked: dict[str, Any]) -> dict[str, Any] | None:
    match asked.pop("do"):
        case "produce":
            produce(**asked)
        case "read":
            return read(**asked)
        case "join":
            MEMBERS[asked["member"]] = Member(asked["group"], asked["topic"])
        case "poll":
            return MEMBERS[asked["member"]].poll()
        case "commit":
            # It commits by itself.
            pass
        case "leave":
            MEMBERS.pop(asked["member"]).leave()
    return None


for line in sys.stdin:
    try:
        answer = do(json.loads(line)) or {}
    except Refused as error:
        answer = {"error": str(error)}
    print(json.dumps({"records": [], "held": []} | answer), flush=True)
