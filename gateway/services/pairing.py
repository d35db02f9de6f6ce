"""Strangers who ask to be let in: who waits, and a yes or a no."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from gateway.domain.roles import Role
from gateway.people.access_records import Request
from gateway.people.pairing import CODE_LIFETIME, Decision
from gateway.pipeline.admission import Admission
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.runtime.observe import happened
from gateway.sdk.models import people as wire
from gateway.services.caller import Caller, NotFound
from gateway.services.people import CHANGED
from gateway.store.people import SqlPeople


class PairingService:
    """The operator's, of keys that see everybody, and of owners in a chat; other callers meet `NotAllowed`."""

    def __init__(self, admission: Admission, store: SqlPeople, dispatcher: Dispatcher, outbox: Outbox) -> None:
        self._admission = admission
        self._pairing = admission.pairing
        self._store = store
        self._dispatcher = dispatcher
        self._outbox = outbox

    async def waiting(self, caller: Caller) -> Sequence[wire.PairingRequest]:
        """Who waits for a yes, the oldest first."""
        caller.require("let people in")
        return [self._shown(request) for request in await self._pairing.waiting()]

    async def proof(self, caller: Caller, who: str, role: Role | None, account: str) -> tuple[str, str]:
        """The code of a request, and what its owner sends back who decides by letter; raises as `decision`.

        Args:
            account: of the owner.
        """
        caller.require("let people in")
        request = await self._find(who)
        return self._pairing.code(request), self._pairing.proof(request, role, account)

    async def decision(self, caller: Caller, who: str, *, is_yes: bool, role: Role | None = None) -> Decision:
        """A yes or a no, to be committed before `Pairing.lock` is let go, which the asker holds.

        Args:
            who: the code, or the account, `kind:id`.
            role: None for that of the channel.

        Raises:
            NotFound: no request has that code or account.
        """
        caller.require("let people in")
        request, chat = await self._find(who), caller.chat
        if not is_yes:
            notice_id = _notice_id() if chat is None else f"{chat.turn_id}.refused"
            return self._pairing.refuse(request, notice_id=notice_id)
        notice_id = _notice_id() if chat is None else f"{chat.turn_id}.let-in"
        return await self._pairing.let_in(request, role=role, via=caller.via, notice_id=notice_id)

    async def approve(self, caller: Caller, who: str, role: wire.Role | None = None) -> wire.PairingDecision:
        """Let a person in; what they wrote meanwhile is answered. Arguments and errors are those of `decision`."""
        return await self._decide(caller, who, is_yes=True, role=role)

    async def refuse(self, caller: Caller, who: str) -> wire.PairingDecision:
        """Refuse a person, who gets no other code for a week; raises as `approve`."""
        return await self._decide(caller, who, is_yes=False, role=None)

    async def owner_code(self, caller: Caller) -> wire.OwnerCode:
        """A code by which the account that sends it to the agent becomes an owner's; any earlier one is void.

        Raises:
            NotAllowed: only the operator makes owners without a word of another.
        """
        caller.refuse_keys()
        return wire.OwnerCode(code=await self._pairing.offer_owner(), valid_s=CODE_LIFETIME.total_seconds())

    async def shown_owner_code(self, caller: Caller) -> str:
        """The code of `owner_code` that is good still, or else a new one, for a page that is looked at again and again.

        Raises:
            NotAllowed: as `owner_code`.
        """
        caller.refuse_keys()
        return await self._pairing.standing_owner_code() or (await self.owner_code(caller)).code

    async def _decide(self, caller: Caller, who: str, *, is_yes: bool, role: wire.Role | None) -> wire.PairingDecision:
        async with self._pairing.lock:
            decision = await self.decision(caller, who, is_yes=is_yes, role=role)
            await self._store.change(decision.change, decision.notices)
            self._admission.people.changed()
        if decision.woken:
            self._dispatcher.look()
        for notice in decision.notices:
            self._outbox.wake(notice.conversation)
        happened(CHANGED)
        return wire.PairingDecision(
            channel=decision.channel,
            account=decision.account,
            outcome="approved" if is_yes else "refused",
            text=decision.text.replace("`", ""),
        )

    async def _find(self, who: str) -> Request:
        request = await self._pairing.find(who)
        if request is None:
            raise NotFound(f"no request has the code or account {who[:80]!r}; perhaps it was decided already")
        return request

    def _shown(self, request: Request) -> wire.PairingRequest:
        return wire.PairingRequest(
            code=self._pairing.code(request),
            channel=request.channel,
            account=request.account,
            label=request.label,
            asked_at=request.first_at,
            expires_at=request.expires_at,
            messages=request.held,
        )


def _notice_id() -> str:
    return f"op_{secrets.token_hex(8)}"
