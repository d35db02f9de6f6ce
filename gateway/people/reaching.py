"""Where people can be written to: direct chats in which the gateway has heard them, and in which they are let in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.domain.channels import Channels
from gateway.domain.roles import Role
from gateway.domain.sessions import LOCAL
from gateway.domain.visible import NAME_CHARS, clean_name
from gateway.messages import ConversationRef
from gateway.people.access import Access
from gateway.people.identity.file import Account
from gateway.people.identity.identities import Identities


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A direct chat with one account.

    Attributes:
        address: `channel:id`, the channel's name and the platform's id of the account.
        name: how the platform showed the person at first.
        role: what the person may do there.
    """

    address: str
    name: str
    role: Role
    conversation: ConversationRef

    @property
    def full_name(self) -> str:
        """The person's name and the address: the name alone proves nothing, because everybody chooses their own."""
        return f"{self.name} ({self.address})"


class Reaching:
    """Knows the direct chats of people, on the channels that there are now."""

    def __init__(
        self,
        identities: Identities,
        access: Access,
        channels: Channels,
        heard_in: Callable[[Collection[str], str], Awaitable[ConversationRef | None]],
    ) -> None:
        """`heard_in` is `LinkStore.direct_conversation`."""
        self._identities = identities
        self._access = access
        self._channels = channels
        self._heard_in = heard_in

    async def of_person(self, user_id: str) -> Sequence[Place]:
        """Of all accounts of one person."""
        accounts = await self._identities.accounts_of(user_id)
        return [place for account in accounts async for place in self._places(account)]

    async def of_others(self, user_id: str, name: str | None) -> AsyncIterator[Place]:
        """Of everybody but this person; not in the gateway's own channel, where nobody is notified.

        Args:
            name: a person's name, an address, or both as in `Place.full_name`; None: all.
        """
        for user in await self._identities.users():
            for account in user.accounts if user.id != user_id else ():
                if name is not None and not _may_mean(name, account):
                    continue
                async for place in self._places(account):
                    is_meant = name is None or _same(name) in map(_same, (place.name, place.address, place.full_name))
                    if is_meant and place.conversation.channel != LOCAL:
                        yield place

    async def _places(self, account: Account) -> AsyncIterator[Place]:
        kind, _, sender = account.key.partition(":")
        for channel, kind_there in self._channels.kinds.items():
            if kind_there != kind or self._channels.find(channel) is None:
                continue
            role = await self._access.role_on(channel, account.key)
            if role is None:
                continue
            conversation = await self._heard_in([channel], sender)
            if conversation is not None:
                name = clean_name(account.label, NAME_CHARS)
                yield Place(address=f"{channel}:{sender}", name=name, role=role, conversation=conversation)


def _same(name: str) -> str:
    return " ".join(name.casefold().split())


def _may_mean(name: str, account: Account) -> bool:
    """A quick look, so that not everybody's chat is looked up."""
    wanted = _same(name)
    return _same(account.key.partition(":")[2]) in wanted or _same(clean_name(account.label, NAME_CHARS)) == wanted
