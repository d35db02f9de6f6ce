"""Admission, as one piece: who is let in, who asks to be, and who knows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gateway.domain.command_text import parse_command
from gateway.messages import InboundMessage
from gateway.people.access import Access, Entry
from gateway.people.access_records import AccessRecords
from gateway.people.linking.chat import Linking
from gateway.people.linking.links import Link, Party
from gateway.people.pairing import AdmissionReply, Pairing
from gateway.pipeline.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What stands between a message and its turn."""

    access: Access
    people: AccessRecords
    pairing: Pairing
    linking: Linking
    dispatcher: Dispatcher

    async def handle_unadmitted(self, message: InboundMessage, entry: Entry, turn_id: str) -> AdmissionReply:
        """What a message comes to that is not answered by the agent; with the lock of `pairing` held."""
        met = await self._redeemed(message, entry, turn_id) if entry.verdict == "link" else None
        return met or await self.pairing.meet(message, entry, turn_id)

    async def let_through(self, link: Link) -> None:
        """Somebody was linked: what their accounts have said as strangers is answered now, where they are let in."""
        await self.reopen({*(one.key for one in link.accounts), *(party.account for party in link.parties)})

    async def reopen(self, accounts: Collection[str]) -> None:
        """What these have said as strangers is answered now, where they are let in."""
        for account in accounts:
            async with self.pairing.lock:
                if await self.pairing.reopen(account):
                    self.dispatcher.look()

    async def claimed(self, message: InboundMessage, account: str) -> None:
        """Somebody has become an owner: they are asked there from now on, and what they said before is answered."""
        accounts = await self.pairing.write_down(account, message.sender.display_name)
        await self.people.keep_chat(account, message.conversation)
        await self.reopen(accounts)

    async def recover(self) -> None:
        """For a start: answer what owners said as strangers, where the process died right after they claimed."""
        for owner in await self.owners(()):
            await self.reopen({owner, *await self.pairing.linked_to(owner)})

    async def _redeemed(self, message: InboundMessage, entry: Entry, turn_id: str) -> AdmissionReply | None:
        """Somebody who is known elsewhere brings a code from there; None where they are a stranger like any other."""
        command = parse_command(message)
        if command is None or await self.pairing.is_refused(message.conversation.channel, entry.account):
            return None
        me = Party(account=entry.account, label=message.sender.display_name, conversation=message.conversation)
        answer = await self.linking.redeem_as_stranger(command.arguments, me, turn_id)
        if answer is None:
            return None
        is_told = answer.is_heard or self.pairing.may_tell(entry.account)
        return AdmissionReply(text=answer.text if is_told else None, codes=answer.codes)

    async def owners(self, operator_accounts: Collection[str]) -> set[str]:
        """The accounts of owners, besides those of the operator."""
        ranks = (await self.people.snapshot()).ranks
        return {account for account, rank in ranks.items() if rank == "owner"} - set(operator_accounts)
