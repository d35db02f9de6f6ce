"""Whom the configuration names: the owner, or an account on a channel; and where they are reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from gateway.config.unattended import OWNER
from gateway.domain.channels import Channels
from gateway.domain.visible import NAME_CHARS, clean_name
from gateway.errors import EthosError
from gateway.messages import ConversationRef
from gateway.people.access import Access
from gateway.people.access_records import AccessRecords
from gateway.people.identity.identities import Identities
from gateway.people.operators import Operators


class NotReached(EthosError):
    """Who is named cannot be told anything; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """A person, and the direct chat in which they are told something.

    Attributes:
        account: the platform's id of the account there, as in `Sender.user`.
        display_name: for people.
    """

    user_id: str
    account: str
    display_name: str
    conversation: ConversationRef


class Addressing:
    """Finds people and their direct chats as they are now. All raise what `Access.role_on` does."""

    def __init__(
        self,
        people: AccessRecords,
        access: Access,
        identities: Identities,
        operators: Operators,
        *,
        channels: Channels,
        heard_in: Callable[[Collection[str], str], Awaitable[ConversationRef | None]],
    ) -> None:
        """`heard_in` is `LinkStore.direct_conversation`."""
        self._people = people
        self._access = access
        self._identities = identities
        self._operators = operators
        self._channels = channels
        self._heard_in = heard_in

    async def find(self, to: str, *, before: Collection[str] = ()) -> Addressee:
        """Who is meant by `to`.

        Args:
            to: as in the configuration: `owner`, or `channel:account`.
            before: users of the person who was meant until now, and still is as long as they are an owner.

        Raises:
            NotReached: they have not written to the agent, or are not let in.
        """
        return await self._owner(before) if to == OWNER else await self._named(to)

    async def _owner(self, before: Collection[str]) -> Addressee:
        snapshot = await self._people.snapshot()
        owners = {account for account, rank in snapshot.ranks.items() if rank == "owner"} | self._operators.accounts()
        chats = [(account, chat) for account, chat in snapshot.chats.items() if self._channels.find(chat.channel)]
        known = await self._identities.known({*owners, *(account for account, _ in chats)})
        users = {known[account] for account in owners if account in known}
        theirs = [(known[account], account, chat) for account, chat in chats if known.get(account) in users]
        if not theirs:
            raise NotReached(
                "no owner has written to the agent yet, so there is nowhere to tell them; write to it once"
            )
        user_id, account, chat = next((one for one in reversed(theirs) if one[0] in before), theirs[-1])
        return await self._addressee(user_id, account, chat)

    async def _named(self, to: str) -> Addressee:
        channel, _, sender = to.partition(":")
        if self._channels.find(channel) is None:
            raise NotReached(f"the channel {channel} is not switched on, so {to} cannot be told anything")
        account = f"{self._channels.kind(channel)}:{sender}"
        role = await self._access.role_on(channel, account)
        if role is None or role == "guest":
            what = "is not let in" if role is None else "is a guest"
            raise NotReached(f"{to} {what} there; `ethos people` shows and changes who may do what")
        conversation = await self._heard_in([channel], sender)
        user_id = (await self._identities.known([account])).get(account)
        if conversation is None or user_id is None:
            raise NotReached(f"{to} has not written to the agent there yet; once they have, they can be told something")
        return await self._addressee(user_id, account, conversation)

    async def _addressee(self, user_id: str, account: str, conversation: ConversationRef) -> Addressee:
        labels = {one.key: one.label for one in await self._identities.accounts_of(user_id)}
        return Addressee(
            user_id=user_id,
            account=account.partition(":")[2],
            display_name=clean_name(labels.get(account, account), NAME_CHARS),
            conversation=conversation,
        )
