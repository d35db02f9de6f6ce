"""Whoever runs the gateway: accounts that proved to hold the data directory, on the channels that can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.messages import InboundMessage
from gateway.people.identity import IdentityMap
from gateway.protocols import AuthenticatesOperator, ChannelAdapter


class Operators:
    """The operator's accounts on the channels that there are now."""

    def __init__(self, adapters: Callable[[], Sequence[ChannelAdapter]], talk: ChannelAdapter | None = None) -> None:
        """Nothing is asked yet.

        Args:
            adapters: gives another sequence when there are others.
            talk: the channel of programs, where the operator is known by the token.
        """
        self._adapters = adapters
        self._talk = talk
        self._asked: Sequence[ChannelAdapter] | None = None
        self._accounts: frozenset[str] = frozenset()

    def accounts(self) -> frozenset[str]:
        """Each as `kind:id`."""
        adapters = self._adapters()
        if adapters is not self._asked:  # once: this is asked for every message
            self._asked = adapters
            self._accounts = frozenset({*_accounts(adapters), *_accounts(self._of_programs())})
        return self._accounts

    def in_chats(self) -> set[str]:
        """Those on configured channels, where the operator talks as the owner, and not only a program of theirs."""
        return _accounts(self._adapters())

    def kinds_of_others(self) -> set[str]:
        """The kinds of the channels that cannot tell."""
        return {adapter.kind for adapter in self._adapters() if not isinstance(adapter, AuthenticatesOperator)}

    def wrote(self, message: InboundMessage) -> bool:
        """Whether the operator wrote the message."""
        channel, user = message.conversation.channel, message.sender.user
        return any(
            adapter.name == channel and isinstance(adapter, AuthenticatesOperator) and adapter.operator_account == user
            for adapter in (*self._adapters(), *self._of_programs())
        )

    async def join(self, identities: IdentityMap, *, with_programs: bool = False) -> None:
        """Make them one person; the account on the channel of programs only where there is use for it."""
        accounts = self.accounts() if with_programs else _accounts(self._adapters())
        keys = [(account, "Operator") for account in sorted(accounts)]
        if keys:
            await identities.ensure_joined(keys, via="operator")

    def _of_programs(self) -> Sequence[ChannelAdapter]:
        return () if self._talk is None else (self._talk,)


def _accounts(adapters: Sequence[ChannelAdapter]) -> set[str]:
    return {
        f"{adapter.kind}:{adapter.operator_account}"
        for adapter in adapters
        if isinstance(adapter, AuthenticatesOperator)
    }
