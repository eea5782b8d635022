"""A load of gRPC, in a process of its own: publishes again and again, and prints as JSON what was acknowledged."""

import asyncio
import json
import sys
import time

import grpc
import uvloop

from siltlog.infra.grpc.made import silt_pb2 as pb

WINDOW = 64
"""So many requests of a stream are on their way at once."""


class Count:
    """What was acknowledged from the end of the warm-up on."""

    def __init__(self, seconds: float, warmup_seconds: float) -> None:
        self.begins = time.perf_counter() + warmup_seconds
        self.ends = self.begins + seconds
        self.replies = 0
        self.replies_in_all = 0
        self.latencies: list[float] = []

    def counted(self, began: float) -> bool:
        """Counts an acknowledgement; whether there is time for another."""
        now = time.perf_counter()
        self.replies_in_all += 1
        if self.begins <= now < self.ends:
            self.replies += 1
            self.latencies.append(now - began)
        return now < self.ends


async def singles(channel: grpc.aio.Channel, request: bytes, count: Count) -> None:
    publish = channel.unary_unary("/silt.v1.Silt/Publish")
    going = True
    while going:
        began = time.perf_counter()
        await publish(request)
        going = count.counted(began)


async def stream(channel: grpc.aio.Channel, request: bytes, count: Count) -> None:
    call = channel.stream_stream("/silt.v1.Silt/PublishStream")()
    room, sent = asyncio.Semaphore(WINDOW), asyncio.Queue[float | None]()

    async def say() -> None:
        while time.perf_counter() < count.ends:
            await room.acquire()
            sent.put_nowait(time.perf_counter())
            await call.write(request)
        sent.put_nowait(None)
        await call.done_writing()

    saying = asyncio.create_task(say())
    while (began := await sent.get()) is not None:
        await call.read()
        count.counted(began)
        room.release()
    await saying


async def main(port: int, kind: str, workers: int, seconds: float, warmup_seconds: float, path: str) -> None:
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 (before anything is measured)
        request = file.read()
    assert pb.PublishRequest.FromString(request).topic
    count = Count(seconds, warmup_seconds)
    act = singles if kind == "singles" else stream
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        await asyncio.gather(*(act(channel, request, count) for _ in range(workers)))
    latencies = sorted(count.latencies)
    told = {
        "per_second": count.replies / seconds,
        "in_all": count.replies_in_all,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    _, port, kind, workers, seconds, warmup_seconds, path = sys.argv
    uvloop.run(main(int(port), kind, int(workers), float(seconds), float(warmup_seconds), path))
