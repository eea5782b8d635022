"""The servers that a client knows: which of them a request goes to, and what is learned of them by their answers."""

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.client.core import Cut, Request, Response
from siltlog.infra.errors import ConfigError, SiltlogError

UNIX = "unix:"
"""Begins the URL of a server that is reached by a socket in the file system: `unix:/path/to/silt.sock`."""
URLS_MAX = 64
"""Servers that are kept, those that were learned among them."""
_TOPICS = "/v1/topics/"
_VIEW = names.HEADER_VIEW.lower()


class Send(NamedTuple):
    url: str
    request: Request


class Endpoints:
    """The addresses of the servers, one of which is in use; the next one is after it failed.

    Servers that say in which view they answer are nodes of a cluster. Of them it is learned which one owns a topic, and
    what is asked of the topic goes there, until that one fails or says otherwise.
    """

    def __init__(self, url: str | Sequence[str]) -> None:
        """Raises ConfigError for anything that is not an http or https URL, or `unix:` and the path of a socket."""
        # A path may have a comma in it.
        alone = isinstance(url, str) and url.startswith(UNIX)
        given = url.split(",") if isinstance(url, str) and not alone else [url] if alone else list(url)
        self.urls = tuple(_checked_url(one) for one in given if str(one).strip())
        if not self.urls:
            raise ConfigError(f"a server's URL is needed, such as {names.DEFAULT_URL}")
        self.view = 0
        """The newest view that a node has answered in; 0 where the servers are no cluster."""
        self._all = self.urls
        self._index = 0
        self._owners: dict[str, str] = {}
        self._around: set[str] = set()
        """Topics whose owner could not be reached: they are asked of the others, who find the next one."""
        self._silent: set[str] = set()
        """Servers that gave no answer when they were asked last: the others come before them."""
        self._leaving: dict[str, set[Cut]] = {}
        """Cuts, by server, of requests that wait there, and leave it once it gives another no answer."""

    @property
    def current(self) -> str:
        return self._all[self._index]

    def send(self, request: Request, *, hasty: bool = False) -> "Send":
        """Says where a request goes, and how it is sent there; `hasty`: it can be sent to another node after this."""
        if hasty and len(self._all) > 1 and request.node_timeout_ms is not None:
            request = replace(request, read_timeout_ms=min(request.answer_timeout_ms, request.node_timeout_ms))
        if request.leaves and self.view and len(self._all) > 1:
            request = replace(request, cut=Cut())
        topic = _topic_of(request.path) if self.view else ""
        if not topic or topic in self._around or self.current.startswith(UNIX):
            return self._sent(Send(self.current, request))
        headers = {**request.headers, names.HEADER_ROUTE: names.ROUTE_DIRECT}
        timeout_ms = min(request.answer_timeout_ms, request.owner_timeout_ms or request.answer_timeout_ms)
        direct = replace(request, headers=headers, read_timeout_ms=timeout_ms)
        return self._sent(Send(self._owners.get(topic, self.current), direct))

    def _sent(self, send: Send) -> Send:
        if send.request.cut is not None:
            self._leaving.setdefault(send.url, set()).add(send.request.cut)
        return send

    def over(self, send: Send) -> None:
        """Takes note that what was sent waits no more, whatever came of it."""
        if send.request.cut is not None:
            self._leaving[send.url].discard(send.request.cut)

    def answered(self, url: str, response: Response) -> None:
        """Takes note that a server answers, and of a node's view."""
        self._silent.discard(url)
        view = response.headers.get(_VIEW, "")
        if view.isascii() and view.isdigit():
            self.view = max(self.view, int(view))

    def succeeded(self, request: Request) -> None:
        if self._around:
            self._around.discard(_topic_of(request.path))

    def told(self, url: str, request: Request, error: SiltlogError) -> bool:
        """A node does not own the topic; whether it is known now who does. Raises nothing, whatever was told."""
        topic, owner = _topic_of(request.path), error.members.get("url")
        view = error.members.get("view")
        self._owners.pop(topic, None)
        try:
            owner = _checked_url(owner) if owner else ""
        except ConfigError:
            owner = ""
        if not owner or owner == url or not self.follows(url, owner) or not isinstance(view, int) or view < self.view:
            self._around.add(topic)
            return False
        if owner not in self._all and len(self._all) < URLS_MAX:
            self._all = (*self._all, owner)
        self._owners[topic] = owner
        return True

    def knows(self, url: str) -> bool:
        """Whether it was named, or is a node that a server named."""
        return url in self._all

    def follows(self, teller: str, url: str) -> bool:
        """Whether what is sent to the one may go to the other: it must be no less protected on its way."""
        if url in self._all or url.startswith(UNIX):
            return url in self._all
        if url.startswith("https:"):
            return teller.startswith("https:")
        return teller.startswith("http:") and (is_loopback(url) or not is_loopback(teller))

    def failed(self, url: str, path: str = "") -> None:
        """Moves on, unless another caller already did. What was asked for with `path` had no answer: the others know
        who has its topic by now, and pass it on."""
        if self.view and (topic := _topic_of(path)):
            self._around.add(topic)
        if path:
            self._silent.add(url)
        if url == self.current:
            others = [*range(self._index + 1, len(self._all)), *range(self._index)]
            answering = [index for index in others if self._all[index] not in self._silent]
            self._index = next(iter(answering or others), self._index)
        for topic in [topic for topic, owner in self._owners.items() if owner == url]:
            self._owners.pop(topic, None)
            self._around.add(topic)
        if path:
            for cut in list(self._leaving.get(url, ())):
                cut.make()


def _topic_of(path: str) -> str:
    """The topic that a path of the API is of, as it is written there; empty where there is none."""
    if not path.startswith(_TOPICS):
        return ""
    return path[len(_TOPICS) :].partition("?")[0].partition("/")[0]


def is_loopback(url: str) -> bool:
    """Whether it names this machine whatever a resolver says."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: Any) -> str:
    text = str(url).strip()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX).removeprefix("//")
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise ConfigError(f"{text!r} is no path of a socket; write it like {UNIX}/var/lib/siltlog/silt.sock")
        return UNIX + path
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not (parts.query or parts.fragment)
        if usable and "@" in parts.netloc:
            raise ConfigError(
                f"the URL of {parts.hostname} has a user name or password in it, which ends up in logs: leave it out, "
                "and give a token"
            )
    except ValueError:
        usable = False
    if not usable:
        shown = text.rpartition("@")[2]
        raise ConfigError(f"{shown!r} is not a server's URL; write it like {names.DEFAULT_URL}")
    return text.rstrip("/")
