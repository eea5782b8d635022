"""Publishes orders to a server of Siltlog over gRPC, and reads them as a member of a group."""

import queue
import sys
from pathlib import Path

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

# A program of your own has the file beside it, or the code that grpc_tools.protoc makes of it.
sys.path.append(str(Path(__file__).parents[2] / "proto"))
pb, services = grpc.protos_and_services("silt/v1/silt.proto")
TOPIC = "python-orders"
Said = pb.SubscribeRequest


def reason(error: grpc.RpcError) -> str:
    """The error_code of an error, by its google.rpc.ErrorInfo."""
    status, info = rpc_status.from_call(error), ErrorInfo()
    return info.reason if status is not None and any(detail.Unpack(info) for detail in status.details) else ""


def publish(client):
    try:
        client.CreateTopic(pb.CreateTopicRequest(name=TOPIC))
    except grpc.RpcError as error:
        if reason(error) != "topic_exists":
            raise
    drinks = ("tea", "coffee", "water")
    requests = [
        pb.PublishRequest(topic=TOPIC, records=[pb.PublishRecord(key=b"ada", value=drink.encode())]) for drink in drinks
    ]
    # One after the other, without waiting: the answers come in the same order.
    for drink, published in zip(drinks, client.PublishStream(iter(requests)), strict=True):
        [at] = published.partitions
        print(f"{drink} is at {at.partition}:{at.first_offset}")
    try:
        client.DescribeTopic(pb.DescribeTopicRequest(topic="nothing"))
    except grpc.RpcError as error:
        print(f"refused: {error.code().name}, {reason(error)}")


def handle(client, count):
    """Takes so many records one by one, and commits each once it is handled."""
    said = queue.SimpleQueue()
    said.put(Said(start=Said.Start(group="python-kitchen", settings=pb.MemberSettings(topics=[TOPIC]))))
    said.put(Said(credit=Said.Credit(records=1)))
    for message in client.Subscribe(iter(said.get, None), timeout=60):
        if message.HasField("problem"):
            raise SystemExit(message.problem.detail)
        for record in message.records.records:
            print(f"{record.key.decode()} wants {record.value.decode()}")
            at = pb.CommittedOffset(topic=record.topic, partition=record.partition, offset=record.offset + 1)
            said.put(Said(commit=Said.CommitOffsets(offsets=[at])))
            count -= 1
            # Whoever closes its side leaves the group. What it said before counts.
            said.put(Said(credit=Said.Credit(records=1)) if count else None)
    print("left")


with grpc.insecure_channel(sys.argv[1]) as channel:
    client = services.SiltStub(channel)
    publish(client)
    handle(client, 3)
