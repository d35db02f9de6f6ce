"""People: accounts, roles, links, and pending requests for access."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, RequestBody, UserName

Code = Annotated[
    str, Field(min_length=1, max_length=512, description="The code, or the account, `kind:id`.", examples=["K7QW2MXA"])
]

Role = Literal["owner", "member", "guest"]
ROLES: tuple[Role, ...] = get_args(Role)
"""From the highest to the lowest."""
AssignedRole = Literal["owner", "member", "guest", "revoked"]
LinkState = Literal["decided", "mapped", "linked", "undoing", "parted", "undone"]
AccessReason = Literal["owner", "listed", "approved", "open", "elsewhere"]


class ChannelAccess(ApiModel):
    """Access of an account to one channel."""

    channel: str = Field(description="The channel.", examples=["web"])
    how: AccessReason = Field(
        description="Why: `owner` has access everywhere, `listed` in the configuration's `allow`, `approved` by a "
        "person, `open` to everybody, `elsewhere` through a linked account that has access on another channel."
    )
    role: Role = Field(description="The role there.")
    by: str | None = Field(description="Who approved it, where it is known.")
    at: datetime | None = Field(description="When it was approved.")


class Account(ApiModel):
    """An account on a platform."""

    key: str = Field(description="The account, `kind:id`.", examples=["mail:ada@example.org"])
    label: str = Field(description="Name that the platform shows; anybody can choose it.")
    first_seen_at: datetime | None = Field(description="When it was seen first.")
    via: str = Field(description="How it came to belong to this person.")
    assigned_role: AssignedRole | None = Field(
        description="Role that was given to this account. A person has the highest of all accounts; `revoked` bars all."
    )
    assigned_by: str | None = Field(description="Who gave it, and where.")
    assigned_at: datetime | None = Field(description="When it was given.")
    access: tuple[ChannelAccess, ...] = Field(description="Channels on which it has access in direct chats.")


class Link(ApiModel):
    """A link that makes two users one person."""

    id: str = Field(description="Id of the link.")
    survivor: str = Field(description="User id that both have now.")
    absorbed: str = Field(description="User id that was merged into it.")
    accounts: tuple[str, ...] = Field(description="Accounts that came with the merged user.")
    by: str = Field(description="`code`, or `operator`.")
    state: LinkState = Field(description="`linked` when it is done, `undone` when it is over; others are on the way.")
    linked_at: datetime = Field(description="When it was decided.")
    undo_until: datetime = Field(description="Until when the person can undo it; an operator can at any time.")
    undone_at: datetime | None = Field(description="When it was undone.")
    notified: tuple[str, ...] = Field(description="Accounts that are told about it.")


class Person(ApiModel):
    """A person."""

    id: str = Field(description="User id.", examples=["u_3f9a"])
    ids: tuple[str, ...] = Field(description="All user ids under which they have written, their own first.")
    name: str = Field(description="Name that a platform shows; it proves nothing.", examples=["Ada"])
    is_operator: bool = Field(description="Whether they run the gateway; an operator is always an owner.")
    role: AssignedRole | None = Field(
        description="Their highest role; `revoked`: access was revoked; null: they have access nowhere."
    )
    assigned_role: AssignedRole | None = Field(description="Role that was given to them; null: that of the channel.")
    last_seen_at: datetime | None = Field(description="When they last wrote something that was answered.")
    accounts: tuple[Account, ...] = Field(description="Their accounts.")
    links: tuple[Link, ...] = Field(description="Their links, oldest first, undone ones too.")


class PairingRequest(ApiModel):
    """A stranger who asks for access to a channel."""

    code: str = Field(description="Code that the stranger was told; ask the person for it.", examples=["K7QW2MXA"])
    channel: str = Field(description="The channel.")
    account: str = Field(description="The account, `kind:id`.")
    label: str = Field(description="Name that the platform shows; anybody can choose it.")
    asked_at: datetime = Field(description="When they asked.")
    expires_at: datetime = Field(description="When the request ends.")
    messages: int = Field(description="How many of their messages wait for the decision.")


class PairingDecision(ApiModel):
    """A decision about a request for access."""

    channel: str = Field(description="The channel.")
    account: str = Field(description="The account, `kind:id`.")
    outcome: Literal["approved", "refused"] = Field(description="The decision.")
    text: str = Field(description="The same, for people.")


class ApprovePairing(RequestBody):
    """Give a stranger access."""

    who: Code
    role: Role | None = Field(default=None, description="Role that they get; the channel's without it.")


class RefusePairing(RequestBody):
    """Refuse a stranger, who gets no other code for a week."""

    who: Code


class SetRole(RequestBody):
    """Give a person a role on every channel where they have access."""

    role: Role = Field(description="The role.")


class CreateLink(RequestBody):
    """Make two users one person."""

    one: UserName = Field(description="A user id or an account.")
    other: UserName = Field(description="Another user id or account; the account may be one that has not written yet.")
    is_one_kept: bool = Field(default=False, description="`one` keeps its user id; else the user who was there first.")


class LinkResult(ApiModel):
    """The person after linking."""

    person: Person = Field(description="The person.")
    link: Link | None = Field(description="The link; null where an account was added that had not written yet.")
    kept_apart: str | None = Field(default=None, description="What cannot be united, and why; null if nothing is so.")


class ErasePerson(RequestBody):
    """Erase everything about a person, for good; copies of the data of all people in the data directory go with it."""

    confirm: UserName = Field(description="The user id again, or the account where it belongs to no user.")


class Erasure(ApiModel):
    """An erasure that is decided, durably."""

    user: str = Field(description="User id of the erased person.")
    erasure: str = Field(description="Id of the erasure.")
    is_done: bool = Field(description="Whether it is finished; if not it continues, also after a restart.")
    left: str | None = Field(default=None, description="What of the memory stays, and where; null where nothing does.")


class ErasureState(ApiModel):
    """How far an erasure is."""

    erasure: str = Field(description="Id of the erasure.")
    is_done: bool = Field(description="Whether it is finished.")


class ErasurePlan(ApiModel):
    """What an erasure would take, and what it would leave."""

    user: str = Field(description="User id, or the account where it belongs to no user; to be confirmed.")
    accounts: tuple[str, ...] = Field(description="Accounts of the person, also of those linked to them.")
    copies: tuple[str, ...] = Field(description="Copies of the data of all people, which would be deleted with it.")
    configured: tuple[str, ...] = Field(description="Accounts that config.yaml names; the operator takes them out.")
    left: str | None = Field(default=None, description="What of the memory stays, and where; null where nothing does.")


class IdentityMap(ApiModel):
    """Who is behind each account, as `identity-map.json` has it."""

    text: str = Field(description="The file's text.")


class ImportMap(RequestBody):
    """Bring the accounts of a map into this gateway's."""

    text: str = Field(description="Text of the file, in any of the forms of `identity-map.json`.")
    is_replacing: bool = Field(default=False, description="Accounts may get another user than they have.")
    is_dry_run: bool = Field(default=False, description="Say what would change, and change nothing.")


class ImportedAccount(ApiModel):
    """An account of a map that is imported."""

    account: str = Field(description="The account, `kind:id`.")
    user: str = Field(description="User id in the imported map; after links the one that counts.")
    known_user: str | None = Field(description="User id that it had here before; null if it was not known.")


class MapChanges(ApiModel):
    """What an import changed, or would."""

    added: tuple[ImportedAccount, ...] = Field(description="Accounts that were not known.")
    moved: tuple[ImportedAccount, ...] = Field(description="Accounts that get another user.")
    kept: tuple[ImportedAccount, ...] = Field(description="Accounts that keep their user, because nothing is replaced.")
    erased: tuple[ImportedAccount, ...] = Field(description="Accounts of erased people, which are left out.")
    same: int = Field(description="How many accounts are known with the same user.")
    is_dry_run: bool = Field(description="Whether nothing was changed.")


class Invitation(ApiModel):
    """A link by which a person sets up a password and a second factor for the web pages, once."""

    user: str = Field(description="User id.", examples=["u_3f9a"])
    url: str = Field(description="The link; a secret. A new one ends it.")
    expires_at: datetime = Field(description="When it ends.")


class InviteNew(RequestBody):
    """Invite somebody who has no account here yet."""

    name: str = Field(min_length=1, max_length=64, description="Their name.", examples=["Ada"])
    role: Role = Field(default="member", description="Their role.")


class SignInsEnded(ApiModel):
    """A person can no longer sign in to the web pages, until they are invited again."""

    user: str = Field(description="User id.", examples=["u_3f9a"])
    had_password: bool = Field(description="Whether they had a password.")
    browsers: int = Field(description="How many browsers were signed out.")


class OwnerCode(ApiModel):
    """A code that makes the account that sends it to the agent an owner, once."""

    code: str = Field(description="The code, for `/owner`.", examples=["ACDE-FGHJ"])
    valid_s: float = Field(description="Seconds until it ends; a new code ends it, too.")
