"""What is sent to and answered by `/v1/access`. A key is in an answer once, its hash in none."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from siltlog.infra.clock import format_us
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.security.access import Binding, Entry, Role
from siltlog.infra.security.quotas import Quota
from siltlog.infra.security.sessions import SESSION_US, Session

Id = Annotated[str, Meta(description="The key's id; its token begins with `silt_` and this")]


class Key(msgspec.Struct):
    """An API key. Its principal is `key:` and its name, which it shares with those it was rotated from."""

    id: Id
    name: str
    made_at: Time
    expires_at: Time | None


class MadeKey(msgspec.Struct):
    """`key` is the token: it is told this once."""

    id: Id
    name: str
    key: str
    expires_at: Time | None
    version: Whole

    def __repr__(self) -> str:
        return f"MadeKey(id={self.id!r})"


class AccessDocument(msgspec.Struct):
    """Tells who may do what: keys without what is kept of their secrets, and the rest by ids."""

    version: Whole
    keys: list[Key]
    bindings: dict[str, Binding]
    acls: dict[str, Entry]
    quotas: dict[str, Quota]


class Version(msgspec.Struct):
    version: Annotated[int, Meta(ge=0, description="Of the access document that has it")]


class Revoked(msgspec.Struct):
    """The key counts no more on this node; on others too, or once the object store answers."""

    id: Id
    everywhere: Annotated[bool, Meta(description="Whether it counts no more on other nodes either")]
    warnings: Annotated[list[str], Meta(description="What follows of it, such as that no administrator is left")]


class GrantedRole(msgspec.Struct):
    role: Role
    prefix: str
    principal: Annotated[str, Meta(description="Whom the role is given to: the caller, a group of his, or everybody")]


class LogIn(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(description="An API key, or a token of the identity provider")]

    def __repr__(self) -> str:
        return "LogIn(***)"


class LoggedIn(msgspec.Struct):
    """Whose session the cookie of the answer is."""

    principal: str
    ends_at: Annotated[str, Meta(description="When it ends at the latest; it ends sooner where nobody uses it")]


class LoginWays(msgspec.Struct):
    key: Annotated[bool, Meta(description="There is a page to log in to, with a key")]
    provider: Annotated[str | None, Meta(description="The host of the identity provider that may be asked, if any")]


class HeldSession(msgspec.Struct):
    """The session has ended on this node; on others, and for good, once the object store or the disk takes it."""

    principal: str


def ends_at(session: Session) -> str:
    """When a session ends at the latest."""
    ends_us = session.begun_us + SESSION_US
    return format_us(ends_us if session.login_until_us is None else min(ends_us, session.login_until_us))


class Whoami(msgspec.Struct):
    """The caller. Where authentication is off everybody is `anonymous`, and may do everything."""

    principal: str
    groups: list[str]
    credential: Annotated[str, Meta(description="The id of the credential; empty where there is none")]
    expires_at: Time | None
    roles: list[GrantedRole]
    auth: Literal["on", "off"]
    rights: Annotated[list[Entry], Meta(description="Entries for the caller, a group of his, or everybody")] = []
    by: Annotated[
        Literal["", "key", "token", "certificate", "socket", "session"],
        Meta(description="How the server knows him: `session` is the login of the page; empty where it does not ask"),
    ] = ""
    page: Annotated[
        Literal["on", "read", "off"],
        Meta(description="The setting SILT_UI: whether the page is there, only shows, or is not"),
    ] = "on"


class Checked(msgspec.Struct):
    allowed: bool
    because: Annotated[str, Meta(description="The entry or binding that decided; empty where nothing allows it")]


class WantedRole(msgspec.Struct, forbid_unknown_fields=True):
    role: Role
    prefix: str = ""


class CreateKey(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    bindings: list[WantedRole] = []
    expires_at: str | int | None = None


class RotateKey(msgspec.Struct, forbid_unknown_fields=True):
    overlap_ms: Annotated[int, Meta(ge=0, le=366 * 86_400_000)] = 86_400_000


class Check(msgspec.Struct, forbid_unknown_fields=True):
    principal: str
    operation: str
    resource: str
    groups: list[str] = []
