"""Publishing exactly once over HTTP: claims, increasing sequences, idempotency keys, and what each is answered."""

import time
import uuid
from typing import Any

import pyarrow as pa
import pytest
from http_rig import Http, Reply

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.metrics import catalogue

OCTETS = names.MEDIA_BYTES


@pytest.fixture
def topic(http: Http) -> str:
    """A topic of three partitions."""
    name = f"producers-{uuid.uuid4()}"
    http.create(name, 3)
    return name


def sequenced(first: int, count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": first + i, "partition": partition, "sequence": first + i} for i in range(count)]


def at(*sequences: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": f"s{number}", "partition": partition, "sequence": number} for number in sequences]


def refused(reply: Reply, status: int, code: str, **members: Any) -> str:
    document = reply.json
    assert (reply.status, reply.error_code) == (status, code), document
    assert {name: document[name] for name in members} == members
    detail: str = document["detail"]
    return detail


def claim(http: Http, topic: str, producer: str, method: str = "POST") -> Any:
    reply = http.call(method, f"/v1/topics/{topic}/producers/{producer}")
    assert reply.status == 200, reply
    return reply.json


# --- claims -----------------------------------------------------------------------------------------------
@pytest.mark.rule("E1")
def test_a_claim_fences_older_epochs_in_every_partition(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p"}
    assert claim(http, topic, "p", "GET") == {"producer_id": "p", "producer_epoch": 0, "partitions": []}
    assert http.publish(topic, *sequenced(0, 3), *sequenced(0, 1, 2), **own).status == 200
    http.publish(topic, {"value": "of nobody", "partition": 0})
    where = [
        {"partition": 0, "next_sequence": 3, "last_offset": 2},
        {"partition": 2, "next_sequence": 1, "last_offset": 0},
    ]
    claimed = claim(http, topic, "p")
    assert claimed == {"producer_id": "p", "producer_epoch": 1, "partitions": where}
    for partition, next_sequence in ((0, 3), (1, 0), (2, 1)):
        reply = http.publish(topic, *sequenced(next_sequence, 1, partition), **own)
        refused(reply, 409, "fenced_producer", partition=partition, producer_epoch=1, next_sequence=next_sequence)
    # A retry of what landed before the claim is fenced too: whoever claimed has read on from next_sequence.
    refused(http.publish(topic, *sequenced(0, 3), **own), 409, "fenced_producer", producer_epoch=1)
    assert http.publish(topic, *sequenced(3, 1), Silt_Producer_Epoch="1", **own).status == 200
    assert claim(http, topic, "p", "GET")["producer_epoch"] == 1
    assert claim(http, topic, "p")["producer_epoch"] == 2
    refused(http.publish(topic, *sequenced(4, 1), Silt_Producer_Epoch="1", **own), 409, "fenced_producer")
    assert http.publish(topic, *sequenced(4, 1), Silt_Producer_Epoch="2", **own).status == 200
    # An epoch that is used counts as claimed, in every partition.
    assert http.publish(topic, *sequenced(5, 1), Silt_Producer_Epoch="7", **own).status == 200
    refused(http.publish(topic, *sequenced(0, 1, 1), Silt_Producer_Epoch="6", **own), 409, "fenced_producer")
    assert claim(http, topic, "p")["producer_epoch"] == 8


def test_claims_that_are_refused(http: Http, topic: str) -> None:
    path = f"/v1/topics/{topic}/producers/"
    for method in ("GET", "POST"):
        refused(http.call(method, path + "a%20b"), 400, "invalid_parameter", parameter="producer")
        refused(http.call(method, path + "p?x=1"), 400, "invalid_parameter", parameter="x")
        refused(http.call(method, "/v1/topics/absent/producers/p"), 404, "unknown_topic")
    refused(http.call("DELETE", path + "p"), 405, "method_not_allowed")
    own = {"Silt_Producer_Id": "p", "Silt_Producer_Epoch": str(2**31 - 1)}
    assert http.publish(topic, *sequenced(0, 1), **own).status == 200
    assert "new id" in refused(http.call("POST", path + "p"), 422, "invalid_request")
    assert claim(http, topic, "another")["producer_epoch"] == 1


def test_who_was_forgotten_claims_and_goes_on(http: Http) -> None:
    topic = f"forgotten-{uuid.uuid4()}"
    http.create(topic, 1, producer_expiration_ms=1)
    own = {"Silt_Producer_Id": "p"}
    assert claim(http, topic, "p")["producer_epoch"] == 1
    assert http.publish(topic, *sequenced(0, 1), Silt_Producer_Epoch="1", **own).status == 200
    deadline = time.monotonic() + 60
    while claim(http, topic, "p", "GET")["partitions"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    reply = http.publish(topic, *sequenced(1, 1), Silt_Producer_Epoch="1", **own)
    refused(reply, 409, "unknown_producer", partition=0, next_sequence=0)
    again = claim(http, topic, "p")
    assert (again["producer_epoch"], again["partitions"]) == (2, []), "no epoch is given twice"
    assert http.publish(topic, *sequenced(0, 1), Silt_Producer_Epoch="2", **own).status == 200


# --- the answers ------------------------------------------------------------------------------------------
def test_a_retry_in_other_pieces_gets_every_offset(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p"}
    places = []
    for first, count in ((0, 3), (3, 2), (5, 4)):
        places += http.publish(topic, *sequenced(first, count), **own).json["records"]
        http.publish(topic, {"value": "of another", "partition": 0})
    reply = http.publish(topic, *sequenced(1, 7), **own).json
    assert reply["records"] == places[1:8]
    assert reply["partitions"] == [
        {"partition": 0, "first_offset": 1, "last_offset": 9, "count": 7, "duplicate": True},
    ]
    assert http.publish(topic, *sequenced(0, 9), query="?acks=table", **own).json["records"] == places
    assert http.end(topic) == 12


def test_offsets_older_than_the_last_hundred_requests_are_null(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p"}
    for sequence in range(101):
        assert http.publish(topic, *sequenced(sequence, 1), **own).status == 200
    old = http.publish(topic, *sequenced(0, 1), query="?acks=table", **own).json
    assert old["partitions"] == [
        {"partition": 0, "first_offset": None, "last_offset": None, "count": 1, "duplicate": True}
    ]
    assert old["records"] == [[0, None]]
    assert http.publish(topic, *sequenced(1, 1), **own).json["records"] == [[0, 1]]


def test_a_refusal_names_the_next_sequence_of_each_partition(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p"}
    assert http.publish(topic, *sequenced(0, 2), *sequenced(0, 1, 1), **own).status == 200
    reply = http.publish(topic, *sequenced(2, 1), *sequenced(3, 1, 1), *sequenced(5, 1, 2), **own)
    refused(reply, 409, "unknown_producer", partition=2, next_sequence=0)
    assert reply.json["partitions"] == [
        {"partition": 0, "next_sequence": 2},
        {"partition": 1, "next_sequence": 1},
        {"partition": 2, "next_sequence": 0},
    ]
    assert http.end(topic) == 3


# --- increasing sequences ---------------------------------------------------------------------------------
def test_increasing_sequences(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "replay", "Silt_Sequence_Mode": "increasing"}
    first = http.publish(topic, *at(70, 80, 81), *at(5, partition=1), **own).json
    assert first["records"] == [[0, 0], [0, 1], [0, 2], [1, 0]]
    # Partly seen: that is dropped, the rest is appended.
    mixed = http.publish(topic, *at(80), *at(5, partition=1), *at(81, 90, 99), query="?acks=table", **own).json
    assert mixed["records"] == [[0, None], [1, None], [0, None], [0, 3], [0, 4]]
    assert mixed["partitions"] == [
        {"partition": 0, "first_offset": 3, "last_offset": 4, "count": 2, "duplicate": False},
        {"partition": 1, "first_offset": None, "last_offset": None, "count": 1, "duplicate": True},
    ]
    assert [record["value"] for record in http.read(topic, 0, "values=text")] == ["s70", "s80", "s81", "s90", "s99"]
    assert http.end(topic) == 6
    assert claim(http, topic, "replay", "GET")["partitions"][0] == {
        "partition": 0,
        "next_sequence": 100,
        "last_offset": 4,
    }
    refused(http.publish(topic, *at(101, 101), **own), 409, "out_of_order_sequence", next_sequence=100)
    refused(http.publish(topic, *at(103), *at(9, 8, partition=1), **own), 409, "out_of_order_sequence", partition=1)
    assert claim(http, topic, "replay")["producer_epoch"] == 1
    refused(http.publish(topic, *at(103), **own), 409, "fenced_producer", producer_epoch=1)
    assert http.publish(topic, *at(103), Silt_Producer_Epoch="1", **own).status == 200
    assert http.end(topic) == 7


def test_increasing_sequences_in_columns(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "replay", "Silt_Sequence_Mode": "increasing"}
    numbers = [3 * i for i in range(400)]
    table = pa.table({"value": [f"v{n}" for n in numbers], "sequence": numbers, "partition": [n % 2 for n in numbers]})
    reply = http.arrow(topic, table.slice(0, 250), **own).json
    assert [part["count"] for part in reply["partitions"]] == [125, 125]
    reply = http.arrow(topic, table, "?acks=table", **own).json
    assert reply["partitions"] == [
        {"partition": p, "first_offset": 125, "last_offset": 199, "count": 75, "duplicate": False} for p in (0, 1)
    ]
    for partition in (0, 1):
        values = [record["value"] for record in http.read(topic, partition, "values=text")]
        assert values == [f"v{n}" for n in numbers if n % 2 == partition]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Silt_Sequence_Mode": "increasing"}, 422, "invalid_request"),
        ({"Silt_Producer_Id": "p", "Silt_Sequence_Mode": "falling"}, 400, "invalid_parameter"),
        ({"Idempotency_Key": "k", "Silt_Sequence_Mode": "increasing"}, 422, "invalid_request"),
        ({"Idempotency_Key": "k", "Silt_Producer_Id": "p"}, 400, "invalid_parameter"),
        ({"Idempotency_Key": "k", "Silt_Producer_Epoch": "0"}, 422, "invalid_request"),
        ({"Idempotency_Key": ""}, 400, "invalid_parameter"),
        ({"Idempotency_Key": "x" * 256}, 400, "invalid_parameter"),
        ({"Idempotency_Key": "k"}, 422, "invalid_record"),
        ({"Silt_Producer_Id": "p", "Silt_Sequence": "1"}, 422, "invalid_record"),
    ],
)
def test_headers_that_are_wrong(http: Http, topic: str, headers: dict[str, str], status: int, code: str) -> None:
    refused(http.publish(topic, *at(0), **headers), status, code)
    assert http.end(topic) == 0


# --- idempotency keys -------------------------------------------------------------------------------------
def test_a_request_with_an_idempotency_key_lands_once(http: Http, topic: str) -> None:
    key = {"Idempotency_Key": 'an order, "17"'}
    records: list[dict[str, Any]] = [{"value": i, "key": f"k{i}"} for i in range(20)]
    records += [{"value": "keyless"}, {"value": "there", "partition": 2}, {"value": "keyless too"}]
    first = http.publish(topic, *records, **key).json
    places = first["records"]
    assert [place[0] for place in places[:20]] == [partition_of(f"k{i}".encode(), 3) for i in range(20)]
    home = partition_of(key["Idempotency_Key"].encode(), 3)
    assert [place[0] for place in places[20:]] == [home, 2, home]
    http.publish(topic, {"value": "between"})
    # Whatever else the retry asks for, its answer is the original's.
    for query in ("", "?acks=table&timeout_ms=9000"):
        again = http.publish(topic, *records, query=query, **key).json
        assert again["records"] == places
        assert all(part["duplicate"] for part in again["partitions"])
        assert [part["first_offset"] for part in again["partitions"]] == [
            part["first_offset"] for part in first["partitions"]
        ]
    assert http.end(topic) == len(records) + 1


def test_a_key_is_for_one_request(http: Http, topic: str) -> None:
    path = f"/v1/topics/{topic}/records"
    key = {"Idempotency_Key": "k"}
    assert http.publish(topic, {"value": 1}, **key).status == 200
    refused(http.publish(topic, {"value": 2}, **key), 422, "idempotency_key_reused")
    refused(http.publish(topic, {"value": 1}, query="?partition=1", **key), 422, "idempotency_key_reused")
    refused(http.call("POST", path, b"1", Content_Type=OCTETS, **key), 422, "idempotency_key_reused")
    refused(http.publish(topic, {"value": 1}, query="?acks=none", **key), 422, "unsupported_acks")
    assert http.end(topic) == 1
    # What was refused took no key, and another topic has its own.
    other = {"Idempotency_Key": "other"}
    refused(http.publish(topic, {"value": None}, **other), 422, "invalid_record")
    assert http.publish(topic, {"value": 3}, **other).status == 200
    another = f"another-{uuid.uuid4()}"
    http.create(another, 1)
    assert http.publish(another, {"value": 2}, **key).json["partitions"][0]["duplicate"] is False
    blob = {"Idempotency_Key": "blob", "Content_Type": OCTETS}
    assert http.call("POST", path, b"x", Silt_Header_A="1", **blob).status == 200
    assert http.call("POST", path, b"x", Silt_Header_A="1", **blob).json["partitions"][0]["duplicate"] is True
    refused(http.call("POST", path, b"x", Silt_Header_A="2", **blob), 422, "idempotency_key_reused")


def test_a_key_expires(http: Http) -> None:
    topic = f"keys-{uuid.uuid4()}"
    http.create(topic, 1, idempotency_expiration_ms=1)
    key = {"Idempotency_Key": "k"}
    for value in ("one", "two"):
        for _ in range(2_000):
            reply = http.publish(topic, {"value": value}, **key)
            if reply.status == 200:
                break
            refused(reply, 422, "idempotency_key_reused")
    values = [record["value"] for record in http.read(topic, 0, "values=text")]
    assert values[0] == "one" and values[-1] == "two"


@pytest.mark.rule("E5")
def test_a_key_is_found_after_the_topic_grew(http: Http) -> None:
    topic = f"grown-{uuid.uuid4()}"
    http.create(topic, 1)
    key = {"Idempotency_Key": "k"}
    records = [{"value": i, "key": f"k{i}"} for i in range(20)]
    first = http.publish(topic, *records, **key).json
    assert http.json("PATCH", f"/v1/topics/{topic}", {"partitions": 4}).status == 200
    again = http.publish(topic, *records, **key).json
    assert again["records"] == first["records"]
    assert http.publish(topic, *records, Idempotency_Key="new").json["records"] != first["records"]
    assert http.end(topic) == 40


# --- what is remembered, shown ----------------------------------------------------------------------------
def test_what_is_remembered_is_shown(http: Http, topic: str) -> None:
    def metric(name: str, topic: str | None = None) -> float:
        label = "" if topic is None else f'{{topic="{topic}"}}'
        lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").body.decode().splitlines())
        return float(lines[name + label])

    producers, keys = metric(catalogue.PRODUCERS.name), metric(catalogue.IDEMPOTENCY_KEYS.name)
    taken = metric(catalogue.PRODUCER_STATE_BYTES.name)
    for _ in range(2):
        assert http.publish(topic, *sequenced(0, 2), *sequenced(0, 1, 1), Silt_Producer_Id="p").status == 200
        assert http.publish(topic, {"value": 1}, Idempotency_Key="k").status == 200
    assert metric(catalogue.DUPLICATE_RECORDS.name, topic) == 4
    assert metric(catalogue.RECORDS.name, topic) == 4
    assert metric(catalogue.PRODUCERS_FORGOTTEN.name, topic) == 0
    # Other tests' producers and keys are there too, and some may have expired meanwhile.
    assert metric(catalogue.PRODUCERS.name) <= producers + 2
    assert metric(catalogue.IDEMPOTENCY_KEYS.name) <= keys + 1
    assert 0 < metric(catalogue.PRODUCER_STATE_BYTES.name) <= taken + 1_000
