"""Commands: the same on every channel, natively where a platform has them, else as text that begins with `/`.

They are a surface, as the API and the dashboard are: what they show and change they ask the services, as the person
who typed them. Only the two sides of `/link` are a protocol of the chat alone, see `gateway/people/linking/chat.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.approvals.approval import Decider
from gateway.domain.roles import Right, may, needs
from gateway.domain.sessions import new_session
from gateway.domain.visible import as_name
from gateway.errors import EthosError, MemoryUnavailable, NotOffered
from gateway.files.positions.validation import did_you_mean
from gateway.people.access import OWNER_COMMAND
from gateway.people.linking.chat import LinkAnswer, Linking, Speaker
from gateway.people.linking.links import Party
from gateway.people.tries import ErasureCodes
from gateway.pipeline.commands import CANCEL, CHOOSE, PAIR, STOPPED, CommandCall, CommandResult
from gateway.pipeline.voice_notes import WHENS
from gateway.protocols import CommandInfo
from gateway.services.caller import Caller, ChatTurn
from gateway.services.commands.approvals import ask_again, decide, listed, revoke
from gateway.services.commands.memory import MemoryCall, memory_command, memory_usage
from gateway.services.commands.pairing import PairCall, pair_command
from gateway.services.commands.personal import ForgetMe, export_text, voice_text
from gateway.services.commands.schedules import USAGE as SCHEDULES
from gateway.services.commands.schedules import schedules_command
from gateway.services.commands.skills import skill_command
from gateway.services.commands.tools import SHOWN, tools_text
from gateway.services.commands.usage import DAYS, usage_text

if TYPE_CHECKING:
    from gateway.services.operator_services import OperatorServices

SEARCH_LIMIT = 10
_SPEAKERS = {"user": "you", "assistant": "I"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """One command.

    Attributes:
        is_personal: its answer is about one person, and is not for a group.
        right: without which it is not offered.
    """

    info: CommandInfo
    run: Callable[[CommandCall], Awaitable[CommandResult]]
    is_personal: bool
    right: Right


class Commands:
    """All chat commands, by name; a `gateway.pipeline.commands.ChatCommands`."""

    def __init__(
        self,
        linking: Linking,
        services: Callable[[], Awaitable[OperatorServices]],
        *,
        erasure_codes: ErasureCodes,
        memory_lacks: Collection[str] = (),
        lacks: Collection[str] = (),
    ) -> None:
        """The services are loaded with the first command; `memory_lacks`, and commands in `lacks`, are not offered."""
        self._linking = linking
        self._services = services
        self._forget = ForgetMe(erasure_codes)
        self._commands: dict[str, _Command] = {}
        add, personal = self._add, partial(self._add, is_personal=True)
        add("help", "/help", "what you can type", self._help)
        add("new", "/new", "start a fresh session; memory stays", self._new)
        add("personality", "/personality [name]", "show who can answer, or choose", self._personality)
        why = "" if "origins" in memory_lacks else ", ask where it comes from"
        personal("memory", memory_usage(memory_lacks), f"show what I remember, decide on it{why}", self._memory)
        personal("whoami", "/whoami", "show who I take you for", self._whoami)
        personal("link", "/link [code]", "be one person with me on another channel", self._link)
        personal("unlink", "/unlink", "take the last link back, within 7 days", self._unlink)
        search = "find what was said before"
        personal("search", "/search words", search, self._search, right="search own messages")
        personal("usage", "/usage", "show what you have used, and what is left", self._usage)
        personal("timezone", "/timezone [name]", "show your time zone, or choose it", self._timezone)
        personal("approvals", "/approvals", "show what waits for your yes", self._approvals)
        yes, no = partial(self._decide, is_yes=True), partial(self._decide, is_yes=False)
        personal("yes", "/yes [here|always] [number …]", "have done what waits for your yes", yes)
        personal("no", "/no [number …]", "drop what waits for your yes", no)
        add("skill", "/skill [name]", "show my skills, or load one", self._skill)
        scheduled = "show what I do for you at a time, and change it"
        add("schedules", SCHEDULES, scheduled, self._schedules, right="have schedules")
        personal("tools", "/tools", "show what my tools did for you", self._tools)
        add("stop", "/stop", "stop the answer that is being written", self._stop)
        add("retry", "/retry", "answer my last message again", self._retry)
        add(CANCEL, "/cancel", "decline what a server asks you", self._cancel)
        add(CHOOSE, "/choose number question", "answer my question; its buttons do it for you", self._choose)
        personal("voice", f"/voice [{'|'.join(WHENS)}]", "choose when I answer aloud, too", self._voice)
        personal("export", "/export", "give you everything that is kept about you", self._export)
        personal("forget-me", "/forget-me [code]", "erase everything that is kept about you", self._forget_me)
        personal("web", "/web", "get a link to set up how you sign in to my web pages", self._web)
        pair = "see who asks to be let in, and decide"
        personal(PAIR, "/pair [code]", pair, self._pair, right="let people in")
        owner = "become the owner, with the gateway's own code"
        personal(OWNER_COMMAND, "/owner code", owner, self._owner)
        for name in lacks:
            del self._commands[name]

    def _add(
        self,
        name: str,
        usage: str,
        description: str,
        run: Callable[[CommandCall], Awaitable[CommandResult]],
        *,
        is_personal: bool = False,
        right: Right = "talk",
    ) -> None:
        info = CommandInfo(name=name, usage=usage, description=description)
        self._commands[name] = _Command(info=info, run=run, is_personal=is_personal, right=right)

    @property
    def infos(self) -> tuple[CommandInfo, ...]:
        """For menus and completion."""
        return tuple(command.info for command in self._commands.values())

    async def run(self, name: str, call: CommandCall) -> CommandResult:
        """Do it; what goes wrong on purpose becomes the answer."""
        command = self._commands.get(name)
        if command is None:
            mine = (f"/{key}" for key, one in self._commands.items() if may(call.role, one.right))
            near = did_you_mean(f"/{name}", mine)
            return CommandResult(text=f"There is no command `/{name}`{near}. `/help` shows those that there are.")
        if command.is_personal and not call.message.is_direct:
            return CommandResult(text="The answer to that is for you alone: ask me in a direct chat.")
        if not may(call.role, command.right):
            return CommandResult(text=f"`/{name}` is for an {needs(command.right)} only, and you are a {call.role}.")
        try:
            return await command.run(call)
        except NotOffered as error:
            return CommandResult(text=str(error))
        except EthosError as error:
            is_private = isinstance(error, MemoryUnavailable) and call.role != "owner"
            told = MemoryUnavailable.FOR_PEOPLE if is_private else error
            return CommandResult(text=f"That did not work: {told}")

    # ---- talking ----------------------------------------------------------------------------------------------------

    async def _help(self, call: CommandCall) -> CommandResult:
        mine = [command.info for command in self._commands.values() if may(call.role, command.right)]
        lines = [f"- `{info.usage}`: {info.description}" for info in mine]
        return CommandResult(text="Write to me as you would to a person. Besides:\n\n" + "\n".join(lines))

    async def _new(self, call: CommandCall) -> CommandResult:
        session = new_session(
            call.message, key=call.session.key, user_id=call.user_id, personality_id=call.session.personality_id
        )
        text = f"A fresh session. I still know what I remember about you.{await self._dropped(call)}"
        return CommandResult(text=text, session=session)

    async def _personality(self, call: CommandCall) -> CommandResult:
        services, caller = await self._services(), caller_of(call)
        if call.arguments:
            chosen = await services.personalities.choose(caller, call.arguments)
            session = replace(call.session, personality_id=chosen.id)
            return CommandResult(text=f"From now on **{chosen.name}** answers here.", session=session)
        lines = [
            f"- **{one.id}**{' (now)' if one.id == call.session.personality_id else ''}: {one.description}"
            for one in await services.personalities.all(caller)
            if one.problem is None
        ]
        return CommandResult(text="\n".join(lines) + "\n\nChoose with `/personality name`.")

    async def _stop(self, call: CommandCall) -> CommandResult:
        return CommandResult(text=f"{STOPPED if call.had_effect else 'Nothing is running.'}{await self._dropped(call)}")

    @staticmethod
    async def _cancel(_call: CommandCall) -> CommandResult:
        """Where a question is open, the turn takes this for its answer; see `pipeline/server_questions.py`."""
        return CommandResult(text="No server asks you anything here. `/stop` ends an answer that is being written.")

    async def _dropped(self, call: CommandCall) -> str:
        """Nothing that was asked for in the session is done any more; a sentence where something waited."""
        count = await (await self._services()).approvals.drop(call.session.id)
        calls = "1 call" if count == 1 else f"{count} calls"
        return f" {calls} that waited for a yes will not be made." if count else ""

    async def _retry(self, call: CommandCall) -> CommandResult:
        if call.had_effect:
            return CommandResult(text="I tried the message that was waiting.")
        return CommandResult(text="There is nothing to answer again in this session.", ask_again=True)

    @staticmethod
    async def _choose(call: CommandCall) -> CommandResult:
        number, _, turn_id = call.arguments.strip().partition(" ")
        chosen = (int(number), turn_id) if number.isdecimal() and len(number) <= 2 else None
        return CommandResult(text="That question is not open any more. Write your answer in words.", chosen=chosen)

    # ---- what is known ----------------------------------------------------------------------------------------------

    async def _memory(self, call: CommandCall) -> CommandResult:
        return await memory_command(
            MemoryCall(
                service=(await self._services()).memory,
                caller=caller_of(call),
                words=call.arguments,
                personality_name=call.personality.name,
            )
        )

    async def _search(self, call: CommandCall) -> CommandResult:
        if not call.arguments:
            return CommandResult(text='Say what to look for: `/search words`, `/search "a phrase"`, `/search begin*`.')
        sessions = (await self._services()).sessions
        hits = await sessions.passages(caller_of(call), call.arguments, limit=SEARCH_LIMIT)
        if not hits:
            return CommandResult(text="Nothing was found. Try fewer or other words.")
        lines = [
            f"- {hit.at:%Y-%m-%d %H:%M} UTC, {_SPEAKERS.get(hit.role, hit.role)}: {_one_line(hit.text)}" for hit in hits
        ]
        return CommandResult(text="\n".join(lines))

    async def _usage(self, call: CommandCall) -> CommandResult:
        system = (await self._services()).system
        return CommandResult(text=usage_text(await system.usage(caller_of(call), days=DAYS), system.person_budget()))

    async def _timezone(self, call: CommandCall) -> CommandResult:
        from gateway.services.commands.timezone import timezone_text  # noqa: PLC0415 (with its first question)

        zones = (await self._services()).zones
        return CommandResult(text=await timezone_text(zones, caller_of(call), call.arguments.strip()))

    async def _approvals(self, call: CommandCall) -> CommandResult:
        service = (await self._services()).approvals
        verb, _, rest = call.arguments.strip().partition(" ")
        if verb == "revoke":
            return await revoke(service, call.user_id, rest.strip())
        decider = await self._decider(call)
        if verb == "again":
            return await ask_again(service, decider, rest.strip(), call)
        waiting, channel = await service.waiting(decider), call.message.conversation.channel
        return await listed(service, waiting, await service.grants(call.user_id), decider, channel)

    async def _decide(self, call: CommandCall, *, is_yes: bool) -> CommandResult:
        service = (await self._services()).approvals
        return await decide(service, await self._decider(call), call.arguments, is_yes=is_yes)

    async def _decider(self, call: CommandCall) -> Decider:
        message = call.message
        return Decider(
            user_ids=frozenset(await self._linking.people.ids(call.user_id)),
            role=call.role,
            is_verified=call.is_proved,
            is_direct=message.is_direct,
        )

    async def _skill(self, call: CommandCall) -> CommandResult:
        return await skill_command((await self._services()).skills, caller_of(call), call)

    async def _tools(self, call: CommandCall) -> CommandResult:
        calls = await (await self._services()).tools.calls(caller_of(call), limit=SHOWN)
        return CommandResult(text=tools_text(calls))

    async def _schedules(self, call: CommandCall) -> CommandResult:
        return await schedules_command((await self._services()).schedules, caller_of(call), call)

    # ---- people -----------------------------------------------------------------------------------------------------

    async def _whoami(self, call: CommandCall) -> CommandResult:
        person = await (await self._services()).people.show(caller_of(call), call.user_id)
        lines = [
            f"- `{account.key}`" + (f", {as_name(account.label)}" if account.label != account.key else "")
            for account in person.accounts
        ]
        links = "".join(f"\n{line}" for line in await self._linking.whoami(call.user_id))
        return CommandResult(
            text=f"You are `{call.user_id}`, {call.role} here, known by:\n\n" + "\n".join(lines) + f"{links}\n\n"
            f"**{call.personality.name}** answers here, in session `{call.session.id}`."
        )

    async def _link(self, call: CommandCall) -> CommandResult:
        return self._answered(await self._linking.link(call.arguments, _speaker(call)))

    async def _unlink(self, call: CommandCall) -> CommandResult:
        return self._answered(await self._linking.unlink(call.arguments, _speaker(call)))

    def _answered(self, answer: LinkAnswer) -> CommandResult:
        link = answer.link
        then = None if link is None else partial(self._linking.job.begin, link)
        return CommandResult(text=answer.text, codes=answer.codes, then=then)

    async def _voice(self, call: CommandCall) -> CommandResult:
        personal = (await self._services()).personal
        return CommandResult(text=await voice_text(personal, caller_of(call), call.arguments))

    async def _export(self, call: CommandCall) -> CommandResult:
        personal = (await self._services()).personal
        exported = await personal.export_to(caller_of(call), call.message.conversation)
        text, files = export_text(exported, personal.left_out_of_export)
        return CommandResult(text=text, attachments=files)

    async def _forget_me(self, call: CommandCall) -> CommandResult:
        personal = (await self._services()).personal
        text, actions = await self._forget.run(personal, caller_of(call), call.message, call.arguments)
        return CommandResult(text=text, actions=actions)

    async def _web(self, call: CommandCall) -> CommandResult:
        if not call.is_proved:
            return CommandResult(text="This account is claimed and not proved, so it gets no link. Ask an owner.")
        made = await (await self._services()).logins.ask(caller_of(call))
        text = (
            f"Open this within an hour, and choose a password and a second factor:\n\n{made.url}\n\nIt works once. "
            "Give it to nobody: whoever has it signs in as you. What you had before ends."
        )
        return CommandResult(text=text, codes=(made.url.rpartition("/")[2],))

    async def _pair(self, call: CommandCall) -> CommandResult:
        services, place = await self._services(), call.message.conversation
        asked = PairCall(
            pairing=services.pairing,
            people=services.people,
            caller=caller_of(call),
            account=call.account,
            is_by_letter=self._linking.is_only_claimed(place) is not False,  # what is not known now is taken for one
        )
        return await pair_command(asked, call.arguments)

    async def _owner(self, _call: CommandCall) -> CommandResult:
        """In a direct chat the code is taken before any command is; here it is for menus and for `/help`."""
        return CommandResult(text="Send me `/owner` and the code in a direct chat.")


def caller_of(call: CommandCall) -> Caller:
    """As whom the services are asked."""
    turn = ChatTurn(
        role=call.role, personality_id=call.personality.id, session_id=call.session.id, turn_id=call.turn_id
    )
    return Caller(name=call.message.conversation.channel, user_id=call.user_id, chat=turn)


def _speaker(call: CommandCall) -> Speaker:
    sender = call.message.sender
    me = Party(account=call.account, label=sender.display_name, conversation=call.message.conversation)
    return Speaker(me=me, user_id=call.user_id, turn_id=call.turn_id)


def _one_line(text: str) -> str:
    return " ".join(text.split())
