"""Variables of the environment that begin as ours do: which are Kubernetes', and which are misspelt. Pure."""

import ipaddress
import re
from collections.abc import Collection, Mapping

from siltlog.infra import names
from siltlog.infra.settings.suggestion import alike, nearest

OTHER_PREFIX = "SILTLOG_"
_LINK = re.compile(r"(?:tcp|udp|sctp)://(\[[0-9a-fA-F:.]+\]|[0-9.]+):([0-9]{1,5})", re.ASCII)
_LINK_NAME = re.compile(
    rf"{names.ENV_PREFIX}(?:[A-Z0-9_]+_)??"
    r"(?P<kind>SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?P<part>PROTO|PORT|ADDR))?)?)",
    re.ASCII,
)


def is_link(value: str) -> bool:
    """Whether it is what Kubernetes says of a service's port: `tcp://10.0.0.1:7070`."""
    return _LINK.fullmatch(value) is not None


def is_service_variable(name: str, value: str) -> bool:
    """Whether Kubernetes made it, for a service whose name begins with `silt`: by its name and by what it says."""
    found = _LINK_NAME.fullmatch(name)
    if found is None:
        return False
    kind, part = found["kind"], found["part"]
    if kind == "SERVICE_HOST" or part == "ADDR":
        return _is_address(value)
    if kind.startswith("SERVICE_PORT") or part == "PORT":
        return value.isascii() and value.isdigit()
    if part == "PROTO":
        return value in ("tcp", "udp", "sctp")
    return is_link(value)


def misspelt(variables: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A sentence for each variable that nobody reads and that seems to be meant for Siltlog; an empty one is none."""
    capitals = {name.upper(): name for name in known}
    told = []
    for name in sorted(name for name, value in variables.items() if value):
        if name in known or is_service_variable(name, variables[name]):
            continue
        ours = names.ENV_PREFIX + name.upper().removeprefix(OTHER_PREFIX)
        if name.startswith(names.ENV_PREFIX):
            found = _near(name, known)
            meant = f"did you mean {found}?" if found else "`silt config show` lists those there are;"
            told.append(f"{name} is not a variable of Siltlog: {meant} rename it, or unset it")
        elif name.upper() in capitals or (name.upper().startswith(OTHER_PREFIX) and ours in known):
            meant = capitals.get(name.upper(), ours)
            told.append(f"{name} is not a variable of Siltlog: did you mean {meant}? rename it, or unset it")
    return told


def _near(name: str, known: Collection[str]) -> str | None:
    found = nearest(name.removeprefix(names.ENV_PREFIX), [one.removeprefix(names.ENV_PREFIX) for one in known])
    return None if found is None else names.ENV_PREFIX + found


def misspelt_for(wanted: str, variables: Mapping[str, str], known: Collection[str]) -> str | None:
    """The variable of `variables` that seems to be meant for `wanted`, which is not set; others' are left alone."""
    for name in sorted(name for name, value in variables.items() if value and name.startswith(names.ENV_PREFIX)):
        is_ours = name in known or is_service_variable(name, variables[name])
        if not is_ours and alike(name.removeprefix(names.ENV_PREFIX), [wanted.removeprefix(names.ENV_PREFIX)]):
            return name
    return None


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True
