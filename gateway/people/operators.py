"""The operators: accounts that proved to hold the data directory, on the channels that can tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.domain.channels import Channels
from gateway.messages import InboundMessage
from gateway.people.identity.identities import Identities
from gateway.protocols import AuthenticatesOperator, ChannelAdapter


class Operators:
    """The operator's accounts on the channels that there are now."""

    NAMELESS = "Operator"
    """Their name for people, until they say one."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._asked: Mapping[str, ChannelAdapter] | None = None
        self._accounts: frozenset[str] = frozenset()

    def accounts(self) -> frozenset[str]:
        """Each as `kind:id`."""
        configured = self._channels.configured
        if configured is not self._asked:  # once: this is asked for every message
            self._asked = configured
            self._accounts = frozenset(_accounts(self._channels.all.values()))
        return self._accounts

    def kinds_of_others(self) -> set[str]:
        """The kinds of the channels that cannot tell."""
        return {
            adapter.kind
            for adapter in self._channels.configured.values()
            if not isinstance(adapter, AuthenticatesOperator)
        }

    def wrote(self, message: InboundMessage) -> bool:
        """Whether the operator wrote the message."""
        channel, user = message.conversation.channel, message.sender.user
        adapter = self._channels.find(channel)
        if adapter is None or not isinstance(adapter, AuthenticatesOperator):
            return False
        return adapter.operator_account == user

    async def in_use(self, identities: Identities) -> set[str]:
        """Those that are somebody's: on the local channel once it was talked on, elsewhere from the start.

        Raises:
            IdentityMapBroken, FileError: who is who cannot be read now.
        """
        return set(await identities.known(self.accounts()))

    async def join(self, identities: Identities, *, on_local: bool = False) -> None:
        """Make them one person; the account on the local channel only once it is used."""
        accounts = self.accounts() if on_local else _accounts(self._channels.configured.values())
        keys = [(account, self.NAMELESS) for account in sorted(accounts)]
        if keys:
            await identities.ensure_joined(keys, via="operator")


def _accounts(adapters: Iterable[ChannelAdapter]) -> set[str]:
    return {
        f"{adapter.kind}:{adapter.operator_account}"
        for adapter in adapters
        if isinstance(adapter, AuthenticatesOperator)
    }
