"""The settings of a running server: those that hold, and every way in which they become others.

A change holds as a whole or not at all. It is checked as a start checks it, recorded, written to settings.toml, and
only then told to whoever has it: what a server went by is what it goes by after a crash.
"""

import asyncio
import errno
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.node import Node
from siltlog.infra.redaction import HIDDEN
from siltlog.infra.settings.changed import HOT, changed_path, changed_text
from siltlog.infra.settings.fit import SEGMENTS_MIN
from siltlog.infra.settings.loading import LoadedSettings, Source, shown
from siltlog.infra.settings.settings import SECRETS, ServerSettings
from siltlog.infra.settings.suggestion import did_you_mean
from siltlog.infra.whole_file import replace_whole
from siltlog.server.settings.owners import ASKED_FOR, Owner

CHANGES_A_MINUTE_MAX = 5
MINUTE_SECONDS = 60.0

Asked = Mapping[str, int | str | None]
"""What each setting is to be; None takes back what was changed."""
Record = Callable[[str], Awaitable[None]]
"""Says in words what is about to change, old and new. Returns once that is durable; raises what forbids the change."""


class Configuration:
    """Used on one event loop."""

    def __init__(self, loaded: LoadedSettings, node: Node) -> None:
        """`loaded` is what the server began with; `node.settings` the same, as the node found them to mean."""
        self.settings = node.settings
        """The settings that hold."""
        self.loaded = loaded
        """What was read last, with what was changed since."""
        self._begun = loaded
        self._node = node
        self._owners: Sequence[Owner] = ()
        self._one_at_a_time = asyncio.Lock()
        self._changed_at: deque[float] = deque(maxlen=CHANGES_A_MINUTE_MAX)

    def start(self, owners: Sequence[Owner]) -> None:
        """Tells `owners` of each change, from here on."""
        assert {name for owner in owners for name in owner.names} | ASKED_FOR == HOT, "each hot setting has an owner"
        self._owners = owners

    @property
    def version(self) -> str:
        """Another one whenever a setting that may change is another, or comes from elsewhere."""
        told = [(name, getattr(self.settings, name), self.loaded.sources[name]) for name in sorted(HOT)]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]

    def source(self, name: str) -> tuple[Source, str]:
        """The origin of what holds, and its place there."""
        loaded = self.loaded if name in HOT else self._begun
        return loaded.sources[name], loaded.place(name)

    def waits(self, name: str) -> bool:
        """Whether the files say otherwise than what holds: it takes a restart to act."""
        if name in HOT:
            return bool(getattr(self.loaded.settings, name) != getattr(self.settings, name))
        return bool(getattr(self.loaded.settings, name) != getattr(self._begun.settings, name))

    async def change(self, asked: Asked, expected: str | None, record: Record) -> None:
        """Changes all that is `asked`, or nothing. With `expected` only of that version.

        Raises Refused `config_changed`, `invalid_request`, `overridden`, `needs_restart`; ConfigError for values that
        may not be, or do not go together; Unavailable `rate_limited`, `disk_full`, and what `record` raises.
        """
        # Whoever asked may have gone, and a change that was begun is not left half done.
        await asyncio.shield(asyncio.ensure_future(self._change(asked, expected, record)))

    async def _change(self, asked: Asked, expected: str | None, record: Record) -> None:
        async with self._one_at_a_time:
            if expected is not None and expected != self.version:
                raise problem(
                    "config_changed", "the settings changed meanwhile: look at them again", version=self.version
                )
            self._check(asked)
            kept = {**self.loaded.layers.changed, **asked}
            loaded = self.loaded.with_changed({name: value for name, value in kept.items() if value is not None})
            if "wal_bytes_max" in asked:
                self._check_segments(loaded.settings)
            self._count()
            told = self._differing(loaded)
            await record(told)
            await asyncio.to_thread(self._write, loaded.layers.changed)
            self._node.logger.info("settings were changed", changed=told)
            self._take(loaded)

    async def reload(self, record: Callable[[str], None]) -> str:
        """Reads the files again: what is hot holds at once. Gives why nothing was taken; empty where it was.

        `record` hears in words of what changes.
        """
        async with self._one_at_a_time:
            try:
                loaded = await asyncio.to_thread(self.loaded.read_again)
            except ConfigError as error:
                self._node.logger.error("the settings are not read again, those before hold", reason=error.detail)
                return error.detail
            told = self._differing(loaded)
            if told != "{}":
                record(told)
            self._take(loaded)
            waiting = [name for name in ServerSettings.model_fields if self.waits(name)]
            self._node.logger.info("the settings were read again", changed=told, need_restart=waiting)
            return ""

    def _check(self, asked: Asked) -> None:
        if not asked:
            raise problem("invalid_request", 'changes names no setting, such as {"changes": {"flush_ms": 500}}')
        for name, value in asked.items():
            if name not in ServerSettings.model_fields:
                meant = did_you_mean(name, ServerSettings.model_fields)
                raise problem(
                    "invalid_request", f"there is no setting {name[:80]!r}{meant or ';'} GET /v1/config lists them"
                )
            if name not in HOT:
                raise problem(
                    "needs_restart",
                    f"{name} cannot change while the server runs: write it in {names.CONFIG_FILE}, or set "
                    f"{names.ENV_PREFIX}{name.upper()}, and start the server again",
                    setting=name,
                )
            source, place = self.source(name)
            if source in ("environment", "flag") and value is not None:
                raise problem(
                    "overridden",
                    f"{place} sets {name}, which is over whatever is changed here: start the server without it, or "
                    "change it there",
                    setting=name,
                    place=place,
                )

    def _check_segments(self, wanted: ServerSettings) -> None:
        if not self._has_segments(wanted):
            raise problem(
                "needs_restart",
                f"wal_bytes_max={wanted.wal_bytes_max} is less than {SEGMENTS_MIN} segments of the log, of which each "
                f"has {self.settings.segment_bytes} bytes until the server is started again: write it in "
                f"{names.CONFIG_FILE}, and start it again",
                setting="wal_bytes_max",
            )

    def _has_segments(self, wanted: ServerSettings) -> bool:
        return wanted.wal_bytes_max >= SEGMENTS_MIN * self.settings.segment_bytes

    def _count(self) -> None:
        now = self._node.clock.monotonic()
        if len(self._changed_at) == CHANGES_A_MINUTE_MAX and now - self._changed_at[0] < MINUTE_SECONDS:
            raise problem(
                "rate_limited",
                f"the settings changed {CHANGES_A_MINUTE_MAX} times within a minute: change several at once, or later",
                retry_after_ms=max(1, int((self._changed_at[0] + MINUTE_SECONDS - now) * 1000 + 0.999)),
            )
        self._changed_at.append(now)

    def _differing(self, loaded: LoadedSettings) -> str:
        """Old and new of each setting that would change, as JSON."""
        found = {name: (getattr(self.settings, name), getattr(loaded.settings, name)) for name in sorted(HOT)}
        return msgspec.json.encode({name: both for name, both in found.items() if both[0] != both[1]}).decode()

    def _write(self, changed: Mapping[str, Any]) -> None:
        path = changed_path(self._node.settings.data_dir)
        try:
            replace_whole(path, changed_text(changed).encode())
        except OSError as error:
            code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "internal"
            raise problem(code, f"{path} cannot be written, so nothing was changed: {error.strerror}") from None

    def _take(self, loaded: LoadedSettings) -> None:
        """Has what is hot hold. What would take smaller segments waits for a restart."""
        hot = HOT if self._has_segments(loaded.settings) else HOT - {"wal_bytes_max"}
        moved = {name for name in hot if self._is_another(name, loaded)}
        values = {name: getattr(loaded.settings, name) for name in moved}
        given = {name for name in self.settings.model_fields_set if name not in HOT}
        given |= {name for name in HOT if loaded.sources[name] != "default"}
        self.settings = self.settings.changed(values, given)
        self.loaded = loaded
        for owner in self._owners:
            if not moved.isdisjoint(owner.names):
                try:
                    owner.reconfigure(self.settings)
                except Exception:
                    # The others are to have theirs; a restart mends this one.
                    self._node.logger.exception("a changed setting was not taken", settings=owner.names)

    def _is_another(self, name: str, loaded: LoadedSettings) -> bool:
        # To a topic what its server says by default is another thing than what somebody said.
        given = (self.loaded.sources[name] == "default", loaded.sources[name] == "default")
        return given[0] != given[1] or getattr(self.settings, name) != getattr(loaded.settings, name)

    def told(self, name: str) -> Any:
        """The value that holds, as it may be told: of a secret only whether there is one."""
        value = getattr(self.settings, name)
        if name in SECRETS:
            return HIDDEN if value.get_secret_value() else ""
        return shown(name, str(value) if not isinstance(value, int | str) else value)
