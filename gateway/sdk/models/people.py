"""People: their accounts, what they may do, who asks to be let in, and who is whom."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import Field

from gateway.sdk.models.schema import Sent, UserName, Wire

Who = Annotated[str, Field(min_length=1, max_length=512)]
"""What names somebody; whether there is one is another question."""

Role = Literal["owner", "member", "guest"]
ROLES: tuple[Role, ...] = get_args(Role)
"""From the most that one may do to the least."""
Rank = Literal["owner", "member", "guest", "revoked"]
LinkState = Literal["decided", "mapped", "linked", "undoing", "parted", "undone"]
How = Literal["owner", "listed", "approved", "open", "elsewhere"]


class LetIn(Wire):
    """Where an account is answered in direct chats, and why.

    Attributes:
        how: owners are let in everywhere; `listed` stands in the configuration's `allow`, `approved` was given a yes,
            `open` is everybody there, `elsewhere` is let in by name on another channel and linked to this account.
        role: as what.
        by: who gave the yes, where it is known.
    """

    channel: str
    how: How
    role: Role
    by: str | None
    at: datetime | None


class Account(Wire):
    """An account on a platform.

    Attributes:
        key: `kind:id`.
        label: a name for people; it proves nothing.
        via: how it came to be this person's.
        rank: what it was given by name; a person has the highest of all accounts, and `revoked` bars all of them.
        rank_by: who gave it, and where.
    """

    key: str
    label: str
    first_seen_at: datetime | None
    via: str
    rank: Rank | None
    rank_by: str | None
    rank_at: datetime | None
    let_in: tuple[LetIn, ...]


class Link(Wire):
    """A decision that two users are one person.

    Attributes:
        survivor: the user id that both have now.
        absorbed: the one that came in.
        accounts: those that came in with it.
        by: `code`, or `operator`.
        state: `linked` when it is carried out, `undone` when it is over; the others are on the way.
        undo_until: until when the person can take it back; an operator can at any time.
        told: the accounts that hear of it.
    """

    id: str
    survivor: str
    absorbed: str
    accounts: tuple[str, ...]
    by: str
    state: LinkState
    linked_at: datetime
    undo_until: datetime
    undone_at: datetime | None
    told: tuple[str, ...]


class Person(Wire):
    """Somebody who is known.

    Attributes:
        id: the user id.
        ids: all under which they have written, their own first.
        name: as a platform shows it; it proves nothing.
        is_operator: whether it is whoever runs the gateway, who is always an owner.
        role: what they may do where they may do most; `revoked`: let in nowhere, by name; None: let in nowhere.
        given: the role that they were given by name; None: that of the channel.
        last_seen_at: when they said something last that was answered.
        links: the oldest first, ended ones too.
    """

    id: str
    ids: tuple[str, ...]
    name: str
    is_operator: bool
    role: Rank | None
    given: Rank | None
    last_seen_at: datetime | None
    accounts: tuple[Account, ...]
    links: tuple[Link, ...]


class PairingRequest(Wire):
    """A stranger who asks to be let in on a channel.

    Attributes:
        code: what the stranger was told; ask the person for it.
        label: the name that the platform shows; anybody can choose it.
        messages: how many wait for the yes.
    """

    code: str
    channel: str
    account: str
    label: str
    asked_at: datetime
    expires_at: datetime
    messages: int


class Decided(Wire):
    """What became of a request; `text` says it for people."""

    channel: str
    account: str
    outcome: Literal["let in", "refused"]
    text: str


class Approve(Sent):
    """Let somebody in; without a role they have that of the channel."""

    who: Who = Field(description="The code, or the account, `kind:id`.")
    role: Role | None = None


class Refuse(Sent):
    """Refuse somebody, who gets no other code for a week."""

    who: Who = Field(description="The code, or the account, `kind:id`.")


class SetRole(Sent):
    """What somebody may do on every channel where they are let in."""

    role: Role


class MakeLink(Sent):
    """Make two users one.

    Attributes:
        other: may also be an account, `kind:id`, that has not written yet.
        is_one_kept: `one` keeps its user id; else whoever was there first does.
    """

    one: UserName
    other: UserName
    is_one_kept: bool = False


class Linked(Wire):
    """One person now; `link` is None where an account was added that had not written yet."""

    person: Person
    link: Link | None


class Erase(Sent):
    """Erase everything that is kept about somebody; it cannot be taken back.

    Copies of the data of all people in the data directory are deleted with it: those from before an upgrade, and the
    directories that a restore put aside.

    Attributes:
        confirm: the user id, or the account that is no user's, once more.
    """

    confirm: Who


class Erased(Wire):
    """An erasure that is decided, durably.

    Attributes:
        erasure: its id.
        is_done: it goes on by itself where not, also after a restart.
    """

    user: str
    erasure: str
    is_done: bool
