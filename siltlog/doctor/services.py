"""Checks what a server needs beside it: Redis, unless it starts one of its own, and an object store."""

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import redis

from siltlog.doctor.finding import Finding
from siltlog.doctor.machine import nearest_folder
from siltlog.infra import names
from siltlog.infra.clock import Clock, stopwatch
from siltlog.infra.redaction import redacted
from siltlog.infra.redis.client import CONNECT_TIMEOUT_S
from siltlog.infra.redis.embedded import valkey_binary
from siltlog.infra.security.callers.https import FetchFailed, Https
from siltlog.infra.security.callers.provider import DISCOVERY_PATH, fetch_keys
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore, open_store

CLOCKS_SECONDS_MAX = 30.0
"""Apart. Vacuum compares times of files with ours, and people those of records."""
REDIS_VERSION_MIN = (6, 2)


def coordinator(settings: ServerSettings, clock: Clock) -> Finding:
    if not settings.redis_url:
        return Finding("redis", "ok", f"one of its own: {valkey_binary()}")
    place = urlsplit(settings.redis_url)
    where = place.hostname or place.path
    try:
        options = settings.redis_access.options()
        with redis.Redis.from_url(settings.redis_url, socket_timeout=CONNECT_TIMEOUT_S, **options) as client:
            told: Any = client.info()
            apart = abs(clock.now_us() / 1e6 - float(client.time()[0]))
    except (redis.RedisError, ValueError) as error:
        mend = f"{_client(place)} ping"
        return Finding("redis", "wrong", f"SILT_REDIS_URL: {where} does not answer: {redacted(str(error))}", mend)
    number = str(told["redis_version"])
    if tuple(int(part) for part in number.split(".")[:2]) < REDIS_VERSION_MIN:
        needed = ".".join(map(str, REDIS_VERSION_MIN))
        return Finding(
            "redis", "wrong", f"{where} is version {number}; {needed} is needed", "upgrade it, or use Valkey"
        )
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        mend = f"{_client(place)} config set maxmemory-policy noeviction"
        return Finding(
            "redis", "wrong", f"{where} drops keys when its memory is full ({policy}), groups among them", mend
        )
    if apart > CLOCKS_SECONDS_MAX:
        return Finding(
            "redis", "warning", f"the clock of {where} is {apart:.0f} s from ours", "timedatectl set-ntp true"
        )
    if not told.get("aof_enabled"):
        mend = f"{_client(place)} config set appendonly yes"
        return Finding("redis", "warning", f"{where} keeps no append-only file: a crash costs it what groups did", mend)
    return Finding("redis", "ok", f"{where}, version {number}")


def _client(place: SplitResult) -> str:
    """How a person asks it; without its password, which is not ours to print."""
    if place.scheme == "unix":
        return f"redis-cli -s {place.path}"
    return f"redis-cli -h {place.hostname} -p {place.port or 6379}{' --tls' * (place.scheme == 'rediss')}"


def identity_provider(settings: ServerSettings) -> Finding:
    issuer = settings.oidc_issuer
    try:
        https = Https(Path(settings.oidc_ca) if settings.oidc_ca else None)
        keys = asyncio.run(fetch_keys(issuer, https.get))
    except FetchFailed as error:
        mend = f"curl {issuer.rstrip('/')}{DISCOVERY_PATH}"
        return Finding("identity provider", "wrong", f"SILT_OIDC_ISSUER: {error}", mend)
    return Finding("identity provider", "ok", f"{issuer}; keys that tokens may be signed with: {len(keys.marks)}")


def object_store(settings: ServerSettings, clock: Clock, *, journals: bool = False) -> Finding:
    """Looks at the root, or at where journals are."""
    uri = settings.journal_root_uri if journals else settings.root_uri
    name, setting = ("journals", "SILT_JOURNAL_ROOT") if journals else ("object store", "SILT_ROOT")
    local = urlsplit(uri).scheme == "file"
    place = Path(urlsplit(uri).path)
    if local and not place.exists():
        nearest = nearest_folder(place)
        if not os.access(nearest, os.W_OK | os.X_OK):
            return Finding(name, "wrong", f"{place} cannot be made in {nearest}", f"export {setting}=…")
        return Finding(name, "ok", f"{uri} (made by the first server)")
    store = open_store(uri, **settings.s3_options())
    refused, seconds = _put_twice(store, clock)
    if not refused:
        return Finding(
            name,
            "wrong",
            f"{uri} overwrites what it should refuse (put if absent): of two commits one would be lost",
            "use a store that has conditional writes (If-None-Match)",
        )
    apart = abs(clock.now_us() / 1e6 - store.clock_ms() / 1000)
    if apart > CLOCKS_SECONDS_MAX:
        said = f"the clock of {uri} is {apart:.0f} s from ours"
        return Finding(name, "warning", said, "timedatectl set-ntp true")
    return Finding(name, "ok", f"{uri}, {seconds * 1000:.0f} ms a write")


def _put_twice(store: ObjectStore, clock: Clock) -> tuple[bool, float]:
    """Whether an object that is there is kept, and the seconds of writing one."""
    path = f"{names.CLUSTER_FOLDER}/doctor-{uuid.uuid4()}"
    try:
        with stopwatch(clock) as seconds:
            first = put_once(store, path, b"1", clock)
        again = put_once(store, path, b"2", clock)
        return first and not again and store.get(path) == b"1", seconds[0]
    finally:
        store.delete(path)
