"""`/pair`: an owner says who is let in. `/owner`: somebody who holds the machine becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.domain.codes import is_same, read_code
from gateway.domain.roles import ROLES, Role
from gateway.domain.visible import as_name
from gateway.errors import EthosError
from gateway.messages import ConversationRef
from gateway.people.access import OWNER_COMMAND
from gateway.people.access_records import Request, SetRank
from gateway.people.identity import IdentityMap
from gateway.people.pairing import Decision, Pairing
from gateway.pipeline.commands import CommandCall, CommandResult, Commands
from gateway.protocols import CommandInfo

PAIR = "pair"
_USAGE = (
    "`/pair` shows who waits, `/pair CODE` lets in, `/pair CODE guest` as a guest, `/pair refuse CODE` refuses, "
    "`/pair revoke kind:id` takes it back."
)


class NotDecided(EthosError):
    """What was asked about letting people in cannot be done; the text says why and what can."""


@dataclass(frozen=True, slots=True)
class PairCommand:
    """What an owner can say about who is let in."""

    pairing: Pairing
    identities: IdentityMap
    is_by_letter: Callable[[ConversationRef], bool]
    """Whether a command that was written there is only said to be its owner's."""

    def add_to(self, commands: Commands) -> None:
        """Add the commands to the registry."""
        pair = CommandInfo(name=PAIR, usage="/pair [code]", description="see who asks to be let in, and decide")
        commands.add(pair, self.run, right="let people in")
        owner = CommandInfo(
            name=OWNER_COMMAND, usage="/owner code", description="become the owner, with the gateway's own code"
        )
        commands.add(owner, _said_elsewhere)

    async def run(self, call: CommandCall) -> CommandResult:
        """Do what stands behind the command."""
        words = call.arguments.split()
        via = f"{call.user_id} in a chat"
        match words:
            case []:
                return await self._list()
            case ["revoke", account]:
                return await self._revoke(call, account, via)
            case ["refuse", named]:
                decision = self.pairing.refuse(await self._find(named), notice_id=f"{call.turn_id}.refused")
            case ["approve", named, *more] | [named, *more] if len(more) <= 2:
                found = await self._let_in(call, named, more, via)
                if isinstance(found, CommandResult):
                    return found
                decision = found
            case _:
                return CommandResult(text=_USAGE)
        return CommandResult(text=decision.text, notices=decision.notices, people=decision.change, woken=decision.woken)

    async def _let_in(self, call: CommandCall, named: str, more: list[str], via: str) -> Decision | CommandResult:
        """Let them in, or say what is missing: the role, and by letter a code that only its owner was sent."""
        request = await self._find(named)
        is_by_letter = self.is_by_letter(call.message.conversation)
        brought = read_code(more.pop()) if is_by_letter and more and read_code(more[-1]) else None
        if len(more) > 1:
            return CommandResult(text=_USAGE)
        role = read_role(more[0]) if more else None
        proof = self.pairing.proof(request, role, call.account)
        if is_by_letter and (brought is None or not is_same(brought, proof)):
            code = self.pairing.code(request)
            return CommandResult(text=_prove(" ".join(("/pair", code, *more, proof))), codes=(code, proof))
        return await self.pairing.let_in(request, role=role, via=via, notice_id=f"{call.turn_id}.let-in")

    async def _list(self) -> CommandResult:
        waiting = {self.pairing.code(one): one for one in await self.pairing.waiting()}
        if not waiting:
            return CommandResult(text=f"There are no pending requests.\n\n{_USAGE}")
        lines = [
            f"- `{code}`: `{one.account}`{f', {as_name(one.label)},' if one.label else ''} on the "
            f"channel `{one.channel}`, since {one.first_at:%H:%M} UTC, {one.held} message{'s'[: one.held != 1]} kept"
            for code, one in waiting.items()
        ]
        return CommandResult(text="\n".join(lines) + f"\n\n{_USAGE}", codes=tuple(waiting))

    async def _find(self, named: str) -> Request:
        request = await self.pairing.find(named)
        if request is None:
            raise NotDecided(f"no request has the code or account {named[:80]!r}; `/pair` shows those that wait")
        return request

    async def _revoke(self, call: CommandCall, named: str, via: str) -> CommandResult:
        if self.is_by_letter(call.message.conversation):
            raise NotDecided("anybody can write a letter in your name; use another channel, or `ethos people revoke`")
        user_id = (await self.identities.known((named,))).get(named)
        if user_id == call.user_id:
            raise NotDecided("that is you; another owner can do it, or `ethos people revoke` on the machine")
        accounts = [] if user_id is None else [account.key for account in await self.identities.accounts_of(user_id)]
        if user_id is None and ":" not in named:
            raise NotDecided("expected an account such as `kind:id`; `ethos people list` on the machine shows all")
        change = SetRank(accounts=tuple(accounts or [named]), rank="revoked", via=via, at=datetime.now(UTC))
        return CommandResult(text=f"{', '.join(accounts or [named])}: access is revoked everywhere.", people=change)


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


async def _said_elsewhere(_call: CommandCall) -> CommandResult:
    """In a direct chat the code is taken before any command is; here it is for menus and for `/help`."""
    return CommandResult(text="Send me `/owner` and the code in a direct chat.")
