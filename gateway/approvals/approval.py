"""One call that waits for a person's yes, and grants that spare the question.

An approval is a row from the commit of the turn that asked. It may be decided days and three restarts later. A yes is
for this call only: tool, arguments, person, personality and conversation are bound by a hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from gateway.domain.roles import Role
from gateway.messages import ConversationRef
from gateway.tools.contract import Tool

ApprovalState = Literal["waiting", "granted", "begun", "done", "failed", "uncertain", "refused", "expired", "withdrawn"]
Approver = Literal["owner", "asker"]
GrantScope = Literal["conversation", "always"]
LONGEST_HERE = timedelta(hours=24)
"""How long a grant for one conversation holds."""
MOST_OF_TURN = 8
MOST_OF_PERSON = 30
"""Questions that may wait at once."""


def canonical(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON in one form, so that two that mean the same are the same text."""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def destination_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """To whom, or where: the values of the tool's `destination`, as JSON; empty where it has none, or none is given."""
    values = {name: arguments.get(name) for name in tool.destination}
    return canonical(values) if any(value not in (None, "", [], {}) for value in values.values()) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A call that waits, or waited, for a yes.

    Attributes:
        id: a small number, for people; shared with the proposals of the memory, and given once.
        turn_id: of the turn that asked; `call_id` is the model's.
        user_id: on whose behalf.
        conversation: in which it was asked.
        pin: hash of the tool as it was shown to the model.
        arguments: in canonical JSON.
        sources: what the turn had read that is not the person's own, in words.
        approver: who may say yes.
        decided_by: a user id, or the machine.
        schedule_id: whose turn asks; None: one of a person who is there.
    """

    id: int
    turn_id: str
    call_id: str
    user_id: str
    personality_id: str
    session_id: str
    conversation: ConversationRef
    tool: str
    pin: str
    arguments: str
    destination: str
    sources: tuple[str, ...]
    approver: Approver
    is_destructive: bool
    asked_at: datetime
    expires_at: datetime
    state: ApprovalState = "waiting"
    decided_at: datetime | None = None
    decided_by: str | None = None
    schedule_id: int | None = None

    def again(self, number: int, *, at: datetime) -> Approval:
        """A new question for exactly this call, for as long as this one waited; its `call_id` names this one."""
        return replace(
            self,
            id=number,
            call_id=f"again/{self.id}",
            asked_at=at,
            expires_at=at + (self.expires_at - self.asked_at),
            state="waiting",
            decided_at=None,
            decided_by=None,
        )

    @property
    def key(self) -> tuple[str, str]:
        """Which call of which turn it is; no two have the same."""
        return self.turn_id, self.call_id

    @property
    def digest(self) -> str:
        """What a yes is bound to."""
        where = (self.conversation.channel, self.conversation.conversation, self.conversation.thread)
        whole = (self.tool, self.pin, self.arguments, self.user_id, self.personality_id, *where)
        return hashlib.sha256(json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace")).hexdigest()

    def may_be_granted(self, *, by_owner: bool) -> bool:
        """Whether a grant may spare the next question.

        Never where it destroys. Where the tool names no destination, only an owner may grant it, and only where nothing
        of others had been read.
        """
        return not self.is_destructive and (bool(self.destination) or (by_owner and not self.sources))

    def grant(self, scope: GrantScope, *, by: str, at: datetime) -> Grant:
        """What spares the next question for the same tool, person, personality, destination and schedule."""
        is_here = scope == "conversation"
        return Grant(
            id=0,
            user_id=self.user_id,
            personality_id=self.personality_id,
            tool=self.tool,
            pin=self.pin,
            destination=self.destination,
            scope=scope,
            session_id=self.session_id if is_here else "",
            granted_at=at,
            granted_by=by,
            until_at=at + LONGEST_HERE if is_here else None,
            schedule_id=self.schedule_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Who presses a button; `user_id` None is the operator at the machine.

    Attributes:
        user_ids: all ids of the person.
        is_verified: the account is proved, and not merely claimed: a mail can say no, never yes.
        is_direct: others do not read along.
    """

    user_ids: frozenset[str] | None
    role: Role = "member"
    is_verified: bool = True
    is_direct: bool = True

    @property
    def is_operator(self) -> bool:
        """Who holds the data directory."""
        return self.user_ids is None

    @property
    def is_owner(self) -> bool:
        """The operator is one."""
        return self.is_operator or self.role == "owner"

    def may_see(self, approval: Approval) -> bool:
        """Their own, and what they may decide."""
        return self.sees_all or approval.user_id in (self.user_ids or ())

    @property
    def sees_all(self) -> bool:
        """Not only their own."""
        return self.is_operator or self.role == "owner"

    def may_ask_again(self, approval: Approval) -> bool:
        """Whoever sees it, but for guests, for whom nothing is done."""
        return self.is_operator or (self.role != "guest" and self.may_see(approval))

    def may_grant(self, approval: Approval) -> bool:
        """The owner; where the tool has the person's own credentials, that person, if at least a member."""
        if self.is_operator:
            return True
        if not (self.is_verified and self.is_direct):
            return False
        if self.role == "owner":
            return True
        return approval.approver == "asker" and self.role == "member" and approval.user_id in (self.user_ids or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What spares the question for calls of one tool.

    Attributes:
        destination: the exact values of the tool's destination, as JSON; empty: none, for a tool without one.
        session_id: where it holds; empty: everywhere.
        until_at: None: for ever.
        schedule_id: it holds in the turns of this schedule, and in no other; None: where the person is there.
    """

    id: int
    user_id: str
    personality_id: str
    tool: str
    pin: str
    destination: str
    scope: GrantScope
    session_id: str
    granted_at: datetime
    granted_by: str
    until_at: datetime | None = None
    schedule_id: int | None = None


class ApprovalStore(Protocol):
    """Where approvals and grants are kept.

    Approvals come in with the commit of their turn. The journal of tools begins and ends the calls of those granted.
    """

    async def approvals(
        self, *, user_ids: Sequence[str] | None = None, state: ApprovalState | None = "waiting", limit: int = 200
    ) -> Sequence[Approval]:
        """The newest, oldest first; of these users, or of all. What waited too long has expired."""

    async def approval(self, approval_id: int) -> Approval | None:
        """By its number; None where there is none."""

    async def decide(
        self,
        approval: Approval,
        state: Literal["granted", "refused", "withdrawn"],
        *,
        by: str,
        grant: Grant | None = None,
    ) -> bool:
        """End the wait, durably; False where it does not wait any more, or too long.

        With a yes, the message that makes the call is in the inbox with the same commit, and so is what the yes grants.
        """

    async def withdraw(self, approval_id: int) -> bool:
        """End one that was granted and cannot be done any more; False where it is not granted."""

    async def drop(self, session_id: str) -> int:
        """Withdraw what of this session waits or is granted, and is not begun; how many those are."""

    async def ask_again(self, approval: Approval, number: int, *, at: datetime) -> Approval | None:
        """Ask for an expired call once more, durably, under a new number.

        Returns:
            The new one, or the one that took its place before; None where it is gone, or has not expired.
        """

    async def grants(self, user_ids: Sequence[str] | None = None) -> Sequence[Grant]:
        """Those that hold for this person now, or for all."""

    async def revoke(self, grant_id: int) -> bool:
        """Take one back; False where there is none."""
