"""Calls that wait for a yes: seen and decided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from gateway.approvals.approval import MOST_OF_PERSON, Approval, ApprovalStore, Decider, Grant, GrantScope
from gateway.approvals.telling import questions_for_owners
from gateway.approvals.whole import WholeCalls
from gateway.messages import Attachment, ConversationRef, OutboundMessage
from gateway.sdk.models import approvals as wire
from gateway.services.caller import Caller, Expired, NotAllowed, NotFound, Refused
from gateway.tools.contract import Tool

_ALL = 100_000  # 30 of each person wait at most
AT_THE_MACHINE = "command-line"
"""Who decided, where it was done on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingAnew:
    """What a question needs that is asked again.

    Attributes:
        reserve: gives out numbers.
        find: a tool by its name, as it is offered now.
        owner_chats: where owners are asked.
        whole_calls: writes files for what is longer than a chat shows.
    """

    reserve: Callable[[int], Awaitable[int]]
    find: Callable[[str], Tool | None]
    owner_chats: Callable[[], Awaitable[Sequence[ConversationRef]]]
    whole_calls: WholeCalls


class ApprovalService:
    """One list, one decision, for every surface."""

    def __init__(
        self,
        store: ApprovalStore,
        wake: Callable[[], None],
        person_ids: Callable[[str], Awaitable[Collection[str]]],
        anew: AskingAnew,
    ) -> None:
        """`wake` has the inbox looked through, for the message that makes an approved call."""
        self._store = store
        self._person_ids = person_ids
        self._wake = wake
        self._anew = anew

    async def listed(self, caller: Caller) -> Sequence[wire.ToolApproval]:
        """What waits and the caller may see, oldest first."""
        return [_shown(one) for one in await self.waiting(await self._decider(caller))]

    async def shown(self, caller: Caller, approval_id: int) -> wire.ToolApproval:
        """One. Raises as `get`."""
        return _shown(await self.get(await self._decider(caller), approval_id))

    async def decided(
        self, caller: Caller, approval_id: int, *, is_yes: bool, scope: GrantScope | None = None
    ) -> wire.ToolApproval:
        """The operator's decision. Raises as `yes`."""
        decider = await self._decider(caller)
        if is_yes:
            await self.yes(decider, approval_id, scope=scope)
        else:
            await self.no(decider, approval_id)
        return _shown(await self.get(decider, approval_id))

    async def asked_again(self, caller: Caller, approval_id: int) -> wire.ToolApproval:
        """The new question, which the operator asks for. Raises as `ask_again`."""
        return _shown(await self.ask_again(await self._decider(caller), approval_id))

    async def listed_expired(self, caller: Caller, *, limit: int) -> Sequence[wire.ToolApproval]:
        """The last that waited too long and were not asked for again, of those that the caller may see."""
        decider = await self._decider(caller)
        whose = None if decider.sees_all else sorted(decider.user_ids or ())
        found = await self._store.approvals(user_ids=whose, state=None, limit=_ALL)
        again = {one.key for one in found}
        late = [one for one in found if one.state == "expired" and one.again(0, at=one.asked_at).key not in again]
        return [_shown(one) for one in late[-limit:]]

    async def listed_grants(self, caller: Caller) -> Sequence[wire.ToolGrant]:
        """What spares a question now, of all people or of the key's."""
        user_ids = None if caller.user_id is None else list(await self._person_ids(caller.user_id))
        return [_shown_grant(one) for one in await self._store.grants(user_ids)]

    async def take_back(self, caller: Caller, grant_id: int) -> None:
        """End a grant of any person whom the caller sees.

        Raises:
            NotFound: there is none under that number.
        """
        if caller.user_id is not None:
            await self.revoke(caller.user_id, grant_id)
            return
        if not await self._store.revoke(grant_id):
            raise NotFound(f"there is no grant {grant_id}; `ethos approvals grants` lists those that there are")

    async def _decider(self, caller: Caller) -> Decider:
        """The operator, or who has signed in; the key of a person sees that person's, and decides nothing."""
        if caller.signed_in is not None:
            ids = await self._person_ids(caller.signed_in.user_id)
            return Decider(user_ids=frozenset(ids), role=caller.signed_in.role)
        if caller.user_id is None:
            return Decider(user_ids=None)
        return Decider(user_ids=frozenset(await self._person_ids(caller.user_id)), role="guest", is_direct=False)

    async def waiting(self, decider: Decider) -> Sequence[Approval]:
        """What waits and they may see, oldest first."""
        whose = None if decider.sees_all else sorted(decider.user_ids or ())
        return await self._store.approvals(user_ids=whose, limit=_ALL)

    async def get(self, decider: Decider, approval_id: int) -> Approval:
        """One.

        Raises:
            NotFound: there is none, or they may not see it.
        """
        found = await self._store.approval(approval_id)
        if found is None or not decider.may_see(found):
            raise NotFound(f"nothing waits under the number {approval_id}; `/approvals` lists what does")
        return found

    async def yes(self, decider: Decider, approval_id: int, *, scope: GrantScope | None = None) -> Approval:
        """Have exactly this call made, once.

        Args:
            scope: where the next question of the same kind is spared; None: nowhere.

        Raises:
            NotAllowed: they may not say yes to it, or not from here.
            Refused: it does not wait any more; `Expired`, where it waited too long.
            NotFound: as `get`.
        """
        approval = await self.get(decider, approval_id)
        if not decider.may_grant(approval):
            raise NotAllowed(_why_not(approval, decider))
        if scope is not None and not approval.may_be_granted(by_owner=decider.is_owner):
            raise Refused(f"number {approval_id} is asked for every time; say yes to this one")
        grant = None if scope is None else approval.grant(scope, by=_name(decider), at=datetime.now(UTC))
        await self._decide(approval, "granted", decider, grant)
        self._wake()
        return approval

    async def ask_again(self, decider: Decider, approval_id: int) -> Approval:
        """Ask for exactly the same call once more, where nobody decided in time.

        Returns:
            the new question; the one that waits already where it was asked again before.

        Raises:
            NotAllowed: they may not ask for it.
            Refused: it has not expired, the tool is not what it was, or too many wait.
            NotFound: as `get`.
        """
        late = await self.get(decider, approval_id)
        if not decider.may_ask_again(late):
            raise NotAllowed("nothing is done for a guest; ask an owner for another role")
        if late.state != "expired":
            raise Refused(f"number {approval_id} is {late.state}; only what has expired is asked again")
        tool = self._anew.find(late.tool)
        if tool is None or tool.pin != late.pin:
            why = "there is no such tool here any more" if tool is None else "the tool has changed since"
            raise Refused(f"number {approval_id} cannot be asked again: {why}; tell me again what you want")
        if len(await self._store.approvals(user_ids=[*await self._person_ids(late.user_id)])) >= MOST_OF_PERSON:
            raise Refused(f"{MOST_OF_PERSON} calls wait for a yes already; decide on some of them first")
        again = await self._store.ask_again(late, await self._anew.reserve(1), at=datetime.now(UTC))
        if again is None:
            raise NotFound(f"number {approval_id} is gone")
        if again.state == "expired":
            return await self.ask_again(decider, again.id)
        if again.state != "waiting":
            raise Refused(f"number {approval_id} was asked again as number {again.id}, which is {again.state}")
        return again

    async def questions(self, approval: Approval, who: str, turn_id: str) -> Sequence[OutboundMessage]:
        """What the owners are asked, in chats of their own, on behalf of `who`."""
        chats = await self._anew.whole_calls.owner_chats(await self._anew.owner_chats(), [approval])
        return questions_for_owners([approval], who, chats, turn_id)

    async def files(self, approvals: Sequence[Approval], channel: str) -> Mapping[int, Attachment]:
        """Those with all arguments of what a chat does not show whole, by number, as far as the channel takes them."""
        return await self._anew.whole_calls.files(approvals, channel)

    async def drop(self, session_id: str) -> int:
        """Withdraw what of a session waits, or has its yes and is not begun; how many those are."""
        return await self._store.drop(session_id)

    async def grants(self, user_id: str) -> Sequence[Grant]:
        """What spares this person a question now."""
        return await self._store.grants(list(await self._person_ids(user_id)))

    async def revoke(self, user_id: str, grant_id: int) -> Grant:
        """Take one of the person's grants back.

        Raises:
            NotFound: the person has none under that number.
        """
        grant = next((one for one in await self.grants(user_id) if one.id == grant_id), None)
        if grant is None or not await self._store.revoke(grant_id):
            raise NotFound(f"you have no grant {grant_id}; `/approvals` lists them")
        return grant

    async def no(self, decider: Decider, approval_id: int) -> Approval:
        """Let it go; it is never done. Raises as `yes`."""
        approval = await self.get(decider, approval_id)
        await self._decide(approval, "refused", decider)
        return approval

    async def _decide(
        self, approval: Approval, state: Literal["granted", "refused"], decider: Decider, grant: Grant | None = None
    ) -> None:
        if not await self._store.decide(approval, state, by=_name(decider), grant=grant):
            now = await self._store.approval(approval.id)
            if now is not None and now.state == "expired":
                until = f"{now.expires_at:%Y-%m-%d %H:%M} UTC"
                raise Expired(f"number {now.id} waited until {until}, and has expired; it can be asked again")
            raise Refused(f"number {approval.id} is {'gone' if now is None else now.state} already")


def _name(decider: Decider) -> str:
    return AT_THE_MACHINE if decider.is_operator else min(decider.user_ids or ())


def _shown(approval: Approval) -> wire.ToolApproval:
    return wire.ToolApproval(
        id=approval.id,
        asked_at=approval.asked_at,
        expires_at=approval.expires_at,
        user=approval.user_id,
        personality=approval.personality_id,
        session=approval.session_id,
        schedule=approval.schedule_id,
        tool=approval.tool,
        arguments=approval.arguments,
        sources=approval.sources,
        is_destructive=approval.is_destructive,
        grants=("conversation", "always") if approval.may_be_granted(by_owner=True) else (),
        state=approval.state,
        decided_at=approval.decided_at,
        decided_by=approval.decided_by,
    )


def _shown_grant(grant: Grant) -> wire.ToolGrant:
    return wire.ToolGrant(
        id=grant.id,
        user=grant.user_id,
        personality=grant.personality_id,
        tool=grant.tool,
        destination=grant.destination,
        session=grant.session_id or None,
        schedule=grant.schedule_id,
        granted_at=grant.granted_at,
        granted_by=grant.granted_by,
        until=grant.until_at,
    )


def _why_not(approval: Approval, decider: Decider) -> str:
    if not decider.is_direct:
        return "a yes is given in a direct chat only, where others do not read along"
    if not decider.is_verified:
        return "this account is claimed and not proved, so it can say no, and not yes"
    return f"number {approval.id} is for an owner to decide"
