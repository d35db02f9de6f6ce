"""Who asks, and what they may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from gateway.domain.roles import Right, Role, may, needs
from gateway.errors import EthosError
from gateway.sdk.models.names import Scope

Permission = Scope
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
OF_A_PERSON: frozenset[Permission] = frozenset(
    {
        "memory:read",
        "memory:write",
        "traces:read",
        "traces:write",
        "sessions:read",
        "sessions:write",
        "chat:read",
        "chat:write",
        "people:read",
        "personalities:read",
        "tools:read",
        "schedules:read",
        "schedules:write",
    }
)
"""What the key of a person may hold: all else concerns others, too."""
COMMAND_LINE = "command-line"
"""The operator's name where they use the command line; stands in histories where a channel stands otherwise."""


class ServiceError(EthosError):
    """What was asked for cannot be done; the text says what can."""


class NotAllowed(ServiceError):
    """The caller may not do that."""


class NotFound(ServiceError):
    """There is no such thing, or not for the caller."""


class NotNamed(ServiceError):
    """It is not clear who is meant, or no user has that name; the text says who there is."""


class Ambiguous(NotNamed):
    """Several are meant by it; the text lists them."""


class Refused(ServiceError):
    """It cannot be done as things are now."""


class Expired(Refused):
    """It waited too long, and can be asked for again."""


class TracesOff(Refused):
    """The trace memory is off."""

    def __init__(self) -> None:
        super().__init__(
            "the trace memory is off; set `memory.traces.enabled: true` in config.yaml and restart the gateway"
        )


KEYS_BELOW = "settings."
"""Stands before a key of the configuration in `Malformed.problems`."""


class Malformed(ServiceError):
    """It makes no sense; the text says what would.

    Attributes:
        problems: what is wrong, by the field of a form; empty where it is about no one field.
    """

    def __init__(self, text: str, problems: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.problems = problems or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """The turn in which a person asks, by a command in a chat.

    Attributes:
        role: of the person, there.
        personality_id: who answers there; in a chat only the memory of this personality is meant.
        turn_id: the same however often the turn is tried, so that a repetition changes nothing twice.
    """

    role: Role
    personality_id: str
    session_id: str
    turn_id: str


OF_MEMBERS = OF_A_PERSON - {"people:read"}
OF_GUESTS: frozenset[Permission] = frozenset({"sessions:read", "chat:read", "chat:write"})


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person who has signed in to the web pages."""

    user_id: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: the operator, the holder of an API key, or a person in a chat or on the web pages.

    Attributes:
        name: stands in the histories where a channel stands for other changes; in a chat it is the channel's.
        permissions: None for everything.
        user_id: the only person whose data they see; None for everybody's.
        key_id: of the API key that they hold; None for others.
        chat: of a person in a chat, who may do what their role may; None for others.
        signed_in: of a person on the web pages. An owner is as the operator there, and talks as themselves.
    """

    name: str
    permissions: frozenset[Permission] | None = None
    user_id: str | None = None
    key_id: str | None = None
    chat: ChatTurn | None = None
    signed_in: SignedIn | None = None

    def may(self, permission: Permission) -> bool:
        """Whether the caller has the permission."""
        return self.permissions is None or permission in self.permissions

    @property
    def is_at_machine(self) -> bool:
        """Whether it is the operator at a command line, whom the kernel names."""
        return self.is_operator and self.name == COMMAND_LINE

    @property
    def is_operator(self) -> bool:
        """Whether they hold the gateway itself."""
        return self.permissions is None and self.user_id is None

    def refuse_keys(self) -> None:
        """Refuse every caller but the operator.

        Raises:
            NotAllowed: it is the holder of an API key, or a person who is no owner.
        """
        if self.signed_in is not None and not self.is_operator:
            raise NotAllowed("only an owner may do this")
        if not self.is_operator:
            raise NotAllowed("this is the operator's only, and no API key allows it")

    @property
    def speaks_as(self) -> str | None:
        """The user id of the person as whom they talk; None: the operator, or the holder of a key of nobody."""
        return self.user_id if self.signed_in is None else self.signed_in.user_id

    @property
    def via(self) -> str:
        """How a decision about people came to be, for the record of it."""
        if self.signed_in is not None:
            return f"{self.signed_in.user_id} on the dashboard"
        return self.name if self.chat is None else f"{self.user_id} in a chat"

    def require(self, right: Right) -> None:
        """Refuse callers who may not do what concerns others: people by their role, and the key of one person.

        Raises:
            NotAllowed: they may not.
        """
        if self.chat is None:
            self.refuse_others(None)
        elif not may(self.chat.role, right):
            raise NotAllowed(f"this is for an {needs(right)} only, and you are a {self.chat.role}")

    def refuse_others(self, user_id: str | None) -> None:
        """Refuse what is not this person's alone.

        Raises:
            NotAllowed: it belongs to another person, or to several.
        """
        if self.user_id is not None and user_id != self.user_id:
            if self.signed_in is not None:
                raise NotAllowed("this is not yours alone; only an owner may see or change it")
            raise NotAllowed("this key sees one person only, and this does not belong to that person alone")


def on_pages(user_id: str, role: Role) -> Caller:
    """A person who has signed in to the web pages."""
    signed_in = SignedIn(user_id, role)
    if role == "owner":
        return Caller(name="dashboard", signed_in=signed_in)
    permissions = OF_MEMBERS if role == "member" else OF_GUESTS
    return Caller(name="dashboard", permissions=permissions, user_id=user_id, signed_in=signed_in)


def operator(name: str) -> Caller:
    """The operator, who holds the data directory, by the name of the surface that is used."""
    return Caller(name=name)


def permissions_of(names: Iterable[str]) -> frozenset[Permission]:
    """The permissions of these names.

    Raises:
        Malformed: one is no permission.
    """
    wanted = set(names)
    unknown = wanted - set(PERMISSIONS)
    if unknown or not wanted:
        raise Malformed(f"{', '.join(sorted(unknown)) or 'nothing'} is no scope; there are {', '.join(PERMISSIONS)}")
    return frozenset(permission for permission in PERMISSIONS if permission in wanted)
