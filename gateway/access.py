"""Who is let in. The default of a channel that does not authenticate its people itself is: nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.messages import InboundMessage

AccessMode = Literal["open", "allowlist"]
Verdict = Literal["answer", "refuse", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """Who may talk to the agent on one channel; `allow` lists the platform's own ids of accounts."""

    mode: AccessMode = "allowlist"
    allow: frozenset[str] = frozenset()


class Access:
    """Decides for every message before anything else is done with it."""

    def __init__(self, rules: Mapping[str, AccessRule]) -> None:
        self._rules = rules

    def verdict(self, message: InboundMessage) -> Verdict:
        """`refuse` tells the stranger what to do; `ignore` says nothing, so that groups stay quiet."""
        if not message.is_direct and not message.mentions_bot:
            return "ignore"
        rule = self._rules.get(message.conversation.channel, AccessRule())
        is_known = rule.mode == "open" or message.sender.user in rule.allow
        if message.sender.is_verified and is_known:
            return "answer"
        return "refuse" if message.is_direct else "ignore"


def refusal(message: InboundMessage) -> str:
    """What a stranger is told; it names nobody and nothing but the stranger's own account."""
    if not message.sender.is_verified:
        return "I cannot tell who wrote this, so I do not answer it."
    return (
        "I do not know you yet, so I do not answer. Ask whoever runs this gateway to let your account "
        f"`{message.sender.user}` in, by adding it to `allow` of the channel `{message.conversation.channel}`."
    )
