"""Addresses as settings give them: what each must look like. Raises ValueError, with a sentence, for anything else.

Whoever connects asks here as well, so that what `silt config check` lets pass can be used.
"""

import ipaddress
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
REDIS_SCHEMES = ("redis", "rediss", "unix")
OWN_PATHS = ("v1", "ui", "docs", "openapi.json", "metrics", "healthz", "readyz", "peers")
"""What the server's own paths begin with."""
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100}){1,10}", re.ASCII)
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}", re.ASCII)
_REGION = re.compile(r"(?!-)(?![0-9]+$)[A-Za-z0-9-]{1,63}(?<!-)", re.ASCII)
_HOST = re.compile(r"((?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)*(?!-)[A-Za-z0-9-]{1,63}(?<!-)\.?", re.ASCII)
"""A host as the AWS SDK takes it: without '_'."""
_PORT_MAX = 65_535
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s@]+", re.ASCII)


class RootParts(NamedTuple):
    """`bucket` is empty for a folder of this machine, whose `path` begins with a slash."""

    bucket: str
    path: str


def root_parts(uri: str) -> RootParts:
    """Splits `file:///path` or `s3://bucket/prefix`."""
    parts = _split(uri)
    if parts.query or parts.fragment:
        raise ValueError(f"{uri!r} is not a location: a '?' in it is written %3F, and a '#' %23")
    if parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost"):
        return RootParts("", unquote(parts.path))
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        return RootParts(parts.netloc, parts.path.strip("/"))
    raise ValueError(f"{uri!r} is not a location: use file:///path or s3://bucket/prefix")


def place_uri(text: str) -> str:
    """Reads a place as people write it: a path is a folder of this machine, what has `://` a URI as it is."""
    is_uri = "://" in text or text.lower().startswith(("file:", "s3:"))
    return text if is_uri else Path(text).expanduser().absolute().as_uri()


def redis_url(url: str) -> str:
    """The address without its password and query."""
    parts = _split(url)
    is_socket = parts.scheme == "unix"
    host, path = parts.netloc.rpartition("@")[2], parts.path
    fits = path not in ("", "/") and not host if is_socket else re.fullmatch(r"(/[0-9]*)?", path) is not None
    if parts.scheme not in REDIS_SCHEMES or not url.startswith(f"{parts.scheme}://") or not fits:
        raise ValueError("it is not a Redis address: use redis://host:6379/0 or unix:///path/to/socket")
    try:
        _ = parts.port
    except ValueError:
        # Python's sentence quotes what it took for the port: that is a password's beginning, where it has a '/'.
        raise ValueError("its port is not a number from 0 to 65535; in a password '/' is written %2F") from None
    return f"{parts.scheme}://{host}{path}"


def password_of(url: str) -> str:
    """The password that an address of Redis has, as it is sent; empty where it has none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return unquote(parts.password or parse_qs(parts.query).get("password", [""])[0])


def http_url(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or not _is_host(parts.hostname or ""):
        raise ValueError("it is not a URL: write it as http://host:port or https://host")
    _checked_port(parts)
    return url


def url_prefix(text: str) -> str:
    """A path that a proxy has before all that it hands on, such as /data/log; empty for none."""
    if text and (not _PREFIX.fullmatch(text) or text.split("/")[1] in OWN_PATHS or {".", ".."} & set(text.split("/"))):
        raise ValueError(
            f"{text!r} is not a path that a proxy may put before requests: write it as /data/log, with letters, digits "
            f"and '.', '_', '~', '-', and not as one of the server's own ({', '.join(OWN_PATHS)})"
        )
    return text


def region_name(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise ValueError("it is not a region: use letters, digits and '-', such as eu-central-1")
    return text


def named_hosts(text: str) -> list[str]:
    """The names of a list with commas."""
    hosts = listed(text)
    for host in hosts:
        if not _is_host(host.replace("_", "-")):
            raise ValueError(
                f"{host!r} is not the name of a host: leave out scheme, port and path, such as silt.example"
            )
    return hosts


def page_origins(text: str) -> list[str]:
    """The origins of a list with commas, as browsers send them."""
    origins = listed(text)
    for origin in origins:
        if origin != "null" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin!r} is not an origin: name each one as a browser does, in small letters and without a path, "
                "such as https://app.example"
            )
    return origins


def networks(text: str) -> list[Network]:
    """The networks of a list with commas. An address alone is a network of one."""
    found: list[Network] = []
    for one in listed(text):
        try:
            found.append(ipaddress.ip_network(one))
        except ValueError as error:
            raise ValueError(f"{one!r} is not a network: {error}; write it as 10.0.0.0/8 or 10.1.2.3") from None
    return found


def listening_at(text: str) -> tuple[str, int]:
    """The host and the port of `host:port`; an address of IPv6 stands in brackets."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _is_host(bare) or (":" in bare and bare == host) or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        raise ValueError(f"{text[:200]!r} is not a place to listen at: write it as 127.0.0.1:7071 or [::1]:7071")
    if int(port) > _PORT_MAX:
        raise ValueError(f"{port} is not a port: there are 0 (any that is free) to {_PORT_MAX}")
    return bare, int(port)


def listed(text: str) -> list[str]:
    """Splits a list with commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # Python's sentences may quote it, password and all.
        raise ValueError("it is not an address: its host cannot be read") from None


def _checked_port(parts: SplitResult) -> None:
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"its port is not valid: {error}") from None


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
