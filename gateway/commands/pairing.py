"""`/pair`: an owner sees who asks to be let in, and decides. What is decided is committed with the turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.domain.codes import is_same, read_code
from gateway.domain.roles import ROLES, Role
from gateway.domain.visible import as_name
from gateway.errors import EthosError
from gateway.pipeline.commands import CommandResult
from gateway.services.caller import Caller

if TYPE_CHECKING:
    from gateway.people.pairing import Decision
    from gateway.services.pairing import PairingService
    from gateway.services.people import PeopleService

_USAGE = (
    "`/pair` shows who waits, `/pair CODE` lets in, `/pair CODE guest` as a guest, `/pair refuse CODE` refuses, "
    "`/pair revoke kind:id` takes it back."
)


class NotDecided(EthosError):
    """What was asked about letting people in cannot be done; the text says why and what can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCall:
    """What `/pair` is called with.

    Attributes:
        account: of the owner, `kind:id`.
        is_by_letter: whether the command is only said to be its owner's.
    """

    pairing: PairingService
    people: PeopleService
    caller: Caller
    account: str
    is_by_letter: bool


async def pair_command(call: PairCall, arguments: str) -> CommandResult:
    """Do what the words say."""
    match arguments.split():
        case []:
            return await _list(call)
        case ["revoke", account]:
            return await _revoke(call, account)
        case ["refuse", named]:
            return _decided(await call.pairing.decision(call.caller, named, is_yes=False))
        case ["approve", named, *more] | [named, *more] if len(more) <= 2:
            return await _let_in(call, named, more)
    return CommandResult(text=_USAGE)


def _decided(decision: Decision) -> CommandResult:
    return CommandResult(text=decision.text, notices=decision.notices, people=decision.change, woken=decision.woken)


async def _let_in(call: PairCall, named: str, more: list[str]) -> CommandResult:
    """Let them in, or say what is missing: the role, and by letter a code that only its owner was sent."""
    brought = read_code(more.pop()) if call.is_by_letter and more and read_code(more[-1]) else None
    if len(more) > 1:
        return CommandResult(text=_USAGE)
    role = read_role(more[0]) if more else None
    if call.is_by_letter:
        code, proof = await call.pairing.proof(call.caller, named, role, call.account)
        if brought is None or not is_same(brought, proof):
            return CommandResult(text=_prove(" ".join(("/pair", code, *more, proof))), codes=(code, proof))
    return _decided(await call.pairing.decision(call.caller, named, is_yes=True, role=role))


async def _list(call: PairCall) -> CommandResult:
    waiting = await call.pairing.waiting(call.caller)
    if not waiting:
        return CommandResult(text=f"There are no pending requests.\n\n{_USAGE}")
    lines = [
        f"- `{one.code}`: `{one.account}`{f', {as_name(one.label)},' if one.label else ''} on the "
        f"channel `{one.channel}`, since {one.asked_at:%H:%M} UTC, "
        f"{one.messages} message{'s'[: one.messages != 1]} kept"
        for one in waiting
    ]
    return CommandResult(text="\n".join(lines) + f"\n\n{_USAGE}", codes=tuple(one.code for one in waiting))


async def _revoke(call: PairCall, account: str) -> CommandResult:
    if call.is_by_letter:
        raise NotDecided("anybody can write a letter in your name; use another channel, or `ethos people revoke`")
    if ":" not in account:
        raise NotDecided("expected an account such as `kind:id`; `ethos people list` on the machine shows all")
    change = await call.people.rank_change(call.caller, account, "revoked")
    return CommandResult(text=f"{', '.join(change.accounts)}: access is revoked everywhere.", people=change)


def _prove(command: str) -> str:
    """For an owner who decides by letter."""
    return (
        "This is not done yet: anybody can write a letter in your name. If it was you, answer this with:\n\n"
        f"`{command}`\n\nIf it was not, do nothing."
    )


def read_role(word: str) -> Role:
    """The role that was typed.

    Raises:
        NotDecided: there is no such role.
    """
    for role in ROLES:
        if word.lower() == role:
            return role
    raise NotDecided(f"there is no role {word[:40]!r}; there are {', '.join(ROLES)}")
