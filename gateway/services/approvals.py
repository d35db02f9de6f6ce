"""Calls that wait for a yes: seen and decided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Literal

from gateway.approvals.approval import Approval, ApprovalStore, Decider, Grant, GrantScope
from gateway.sdk.models import approvals as wire
from gateway.services.caller import Caller, NotAllowed, NotFound, Refused

AT_THE_MACHINE = "command-line"
"""Who decided, where it was done on the command line."""


class ApprovalService:
    """One list, one decision, for every surface."""

    def __init__(
        self,
        store: ApprovalStore,
        wake: Callable[[], None],
        person_ids: Callable[[str], Awaitable[Collection[str]]],
    ) -> None:
        """`wake` has the inbox looked through, for the message that makes an approved call."""
        self._store = store
        self._person_ids = person_ids
        self._wake = wake

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

    async def listed_grants(self, caller: Caller) -> Sequence[wire.ToolGrant]:
        """What spares a question now, of all people or of the key's."""
        user_ids = None if caller.user_id is None else list(await self._person_ids(caller.user_id))
        return [_shown_grant(one) for one in await self._store.grants(user_ids)]

    async def take_back(self, grant_id: int) -> None:
        """End a grant of any person, for the operator.

        Raises:
            NotFound: there is none under that number.
        """
        if not await self._store.revoke(grant_id):
            raise NotFound(f"there is no grant {grant_id}; `ethos approvals grants` lists those that there are")

    async def _decider(self, caller: Caller) -> Decider:
        """The operator; the key of a person sees that person's, and decides nothing."""
        if caller.user_id is None:
            return Decider(user_ids=None)
        return Decider(user_ids=frozenset(await self._person_ids(caller.user_id)), role="guest", is_direct=False)

    async def waiting(self, decider: Decider) -> Sequence[Approval]:
        """What waits and they may see, oldest first."""
        return [one for one in await self._store.approvals() if decider.may_see(one)]

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
            Refused: it does not wait any more.
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
