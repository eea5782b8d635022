"""The session of the page, as a browser holds it: logged in, and sending what a browser sends."""

from http.cookies import SimpleCookie
from typing import Any

from http_rig import Http, Reply

OWN = {"Sec_Fetch_Site": "same-origin"}
"""What a browser says of a request that the page itself sends."""


class Visitor(Http):
    """Calls a server as its page does: with the cookies that it was sent."""

    def __init__(self, url: str, context: Any = None) -> None:
        super().__init__(url, context)
        self.cookies: dict[str, str] = {}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        said: dict[str, str] = {**OWN, "Silt_Csrf": "1"}
        if self.cookies:
            said["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = super().call(method, path, body, **{name: value for name, value in (said | headers).items() if value})
        for field in reply.headers.getlist("set-cookie"):
            for name, morsel in SimpleCookie(field).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return reply

    def log_in(self, key: str, **headers: str) -> Reply:
        return self.json("POST", "/ui/login", {"key": key}, **headers)

    def log_out(self, **headers: str) -> Reply:
        return self.call("POST", "/ui/logout", **headers)
