"""Commands: the same on every channel, natively where a platform has them, else as text that begins with `/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from gateway.agent.budgets import UsageStore, first_day, spending
from gateway.agent.meter import Meter
from gateway.domain.personalities import Personalities, Personality
from gateway.domain.roles import Right, Role, may, memory_of, needs
from gateway.domain.sessions import Session, SessionStore, new_session
from gateway.domain.visible import as_name
from gateway.errors import EthosError
from gateway.files.positions.validation import did_you_mean
from gateway.memory.proposals import Reviewer
from gateway.memory.review import MemoryReview
from gateway.messages import Action, Attachment, ConversationRef, InboundMessage, OutboundMessage
from gateway.people.access_records import PeopleChange
from gateway.people.identity import IdentityMap
from gateway.people.linking.chat import LinkAnswer, Linking, Speaker
from gateway.people.linking.links import Party
from gateway.pipeline.commands.memory import USAGE, MemoryCall, MemoryCommands
from gateway.pipeline.commands.personal import PersonalCommands, PersonalData
from gateway.protocols import CommandInfo, MemoryProvider, MemoryScope

SEARCH_LIMIT = 10
_SPEAKERS = {"user": "you", "assistant": "I"}
# Their answers are about one person, and are not for a group.
PERSONAL = frozenset({"export", "forget-me", "memory", "whoami", "search", "usage", "link", "unlink"})

STOPPED = "Stopped."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """What a command is called with.

    Attributes:
        turn_id: the same however often it is tried.
        account: the sender's, `kind:id`.
        role: what the writer may do.
        session: the active one; new, and not yet stored, where there is none.
        had_effect: for `/stop` and `/retry`: a turn was running, or waited, and was acted on when they arrived.
    """

    arguments: str
    message: InboundMessage
    turn_id: str
    account: str
    user_id: str
    role: Role
    session: Session
    personality: Personality
    had_effect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command answers.

    Attributes:
        session: to be stored, and to be the active one.
        ask_again: the agent is to answer the last message of the session once more.
        actions: choices that the answer offers.
        codes: in the answer.
        notices: for others.
        people: who is let in.
        woken: conversations in which messages get their turn now.
        then: to be called once the answer is committed.
    """

    text: str
    session: Session | None = None
    ask_again: bool = False
    actions: tuple[Action, ...] = ()
    codes: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notices: tuple[OutboundMessage, ...] = ()
    people: PeopleChange | None = None
    woken: tuple[ConversationRef, ...] = ()
    then: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    info: CommandInfo
    run: Callable[[CommandCall], Awaitable[CommandResult]]
    is_personal: bool
    right: Right


class Commands:
    """All chat commands, by name."""

    def __init__(
        self,
        *,
        identities: IdentityMap,
        personalities: Personalities,
        sessions: SessionStore,
        memory: MemoryProvider,
        personal: PersonalData,
        review: MemoryReview,
        usage: UsageStore,
        meter: Meter,
        linking: Linking,
    ) -> None:
        self._identities = identities
        self._personalities = personalities
        self._sessions = sessions
        self._memory = MemoryCommands(memory, review)
        self._personal = PersonalCommands(personal)
        self._usage = usage
        self._meter = meter
        self._linking = linking
        self._commands = {
            name: _Command(
                info=CommandInfo(name=name, usage=usage, description=description),
                run=run,
                is_personal=name in PERSONAL,
                right="search own messages" if name == "search" else "talk",
            )
            for name, usage, description, run in (
                ("help", "/help", "what you can type", self._help),
                ("new", "/new", "start a fresh session; memory stays", self._new),
                ("personality", "/personality [name]", "show who can answer, or choose", self._personality),
                ("memory", USAGE, "show what I remember, decide on it, ask where it comes from", self._show_memory),
                ("whoami", "/whoami", "show who I take you for", self._whoami),
                ("link", "/link [code]", "be one person with me on another channel", self._link),
                ("unlink", "/unlink", "take the last link back, within 7 days", self._unlink),
                ("search", "/search words", "find what was said before", self._search),
                ("usage", "/usage", "show what you have used, and what is left", self._show_usage),
                ("stop", "/stop", "stop the answer that is being written", self._stop),
                ("retry", "/retry", "answer my last message again", self._retry),
                ("export", "/export", "give you everything that is kept about you", self._export),
                ("forget-me", "/forget-me [code]", "erase everything that is kept about you", self._forget_me),
            )
        }

    def add(
        self, info: CommandInfo, run: Callable[[CommandCall], Awaitable[CommandResult]], *, right: Right = "talk"
    ) -> None:
        """One more, for direct chats only; what is not given away with the channels' menus must be added before."""
        self._commands[info.name] = _Command(info=info, run=run, is_personal=True, right=right)

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
        except EthosError as error:
            return CommandResult(text=f"That did not work: {error}")

    async def _help(self, call: CommandCall) -> CommandResult:
        mine = [command.info for command in self._commands.values() if may(call.role, command.right)]
        lines = [f"- `{info.usage}`: {info.description}" for info in mine]
        return CommandResult(text="Write to me as you would to a person. Besides:\n\n" + "\n".join(lines))

    async def _new(self, call: CommandCall) -> CommandResult:
        session = new_session(
            call.message, key=call.session.key, user_id=call.user_id, personality_id=call.session.personality_id
        )
        return CommandResult(text="A fresh session. I still know what I remember about you.", session=session)

    async def _personality(self, call: CommandCall) -> CommandResult:
        wanted = call.arguments
        if not wanted:
            lines = [
                f"- **{one.id}**{' (now)' if one.id == call.session.personality_id else ''}: {one.description}"
                for one in self._personalities.list()
                if isinstance(one, Personality)
            ]
            return CommandResult(text="\n".join(lines) + "\n\nChoose with `/personality name`.")
        if not may(call.role, "choose a personality"):
            return CommandResult(text=f"Only an {needs('choose a personality')} chooses who answers; you are a guest.")
        chosen = self._personalities.get(wanted)
        session = replace(call.session, personality_id=chosen.id)
        return CommandResult(text=f"From now on **{chosen.name}** answers here.", session=session)

    async def _show_memory(self, call: CommandCall) -> CommandResult:
        scope = MemoryScope(
            personality_id=call.personality.id,
            user_id=call.user_id,
            session_id=call.session.id,
            turn_id=call.turn_id,
            place=memory_of(call.role, call.personality.memory_scope),
            channel=call.message.conversation.channel,
            author_id=call.user_id,
        )
        ids = tuple(await self._linking.people.ids(call.user_id))
        reviewer = Reviewer(user_id=call.user_id, role=call.role, other_ids=ids)
        answer = await self._memory.run(
            call.arguments,
            MemoryCall(words="", scope=scope, reviewer=reviewer, personality_name=call.personality.name),
        )
        return CommandResult(text=answer.text, actions=answer.actions)

    async def _whoami(self, call: CommandCall) -> CommandResult:
        accounts = await self._identities.accounts_of(call.user_id)
        lines = [
            f"- `{account.key}`" + (f", {as_name(account.label)}" if account.label != account.key else "")
            for account in accounts
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
        then = None if link is None else partial(self._linking.carry_out, link)
        return CommandResult(text=answer.text, codes=answer.codes, then=then)

    async def _search(self, call: CommandCall) -> CommandResult:
        if not call.arguments:
            return CommandResult(text='Say what to look for: `/search words`, `/search "a phrase"`, `/search begin*`.')
        hits = await self._sessions.search_messages(call.arguments, user_id=call.user_id, limit=SEARCH_LIMIT)
        if not hits:
            return CommandResult(text="Nothing was found. Try fewer or other words.")
        lines = [
            f"- {hit.created_at:%Y-%m-%d %H:%M} UTC, {_SPEAKERS.get(hit.role, hit.role)}: {_one_line(hit.snippet)}"
            for hit in hits
        ]
        return CommandResult(text="\n".join(lines))

    async def _show_usage(self, call: CommandCall) -> CommandResult:
        budgets, today = self._meter.budgets, self._meter.today
        rows = await self._usage.spent(since=first_day(today), user_id=call.user_id)
        return CommandResult(text=spending(rows, today=today, zone=str(budgets.zone), limit=budgets.user))

    async def _stop(self, call: CommandCall) -> CommandResult:
        return CommandResult(text=STOPPED if call.had_effect else "Nothing is running.")

    async def _export(self, call: CommandCall) -> CommandResult:
        text, files = await self._personal.export(call.user_id, call.message.conversation)
        return CommandResult(text=text, attachments=files)

    async def _forget_me(self, call: CommandCall) -> CommandResult:
        text, actions = await self._personal.forget_me(call.user_id, call.message, call.arguments, call.turn_id)
        return CommandResult(text=text, actions=actions)

    async def _retry(self, call: CommandCall) -> CommandResult:
        if call.had_effect:
            return CommandResult(text="I tried the message that was waiting.")
        return CommandResult(text="There is nothing to answer again in this session.", ask_again=True)


def _speaker(call: CommandCall) -> Speaker:
    sender = call.message.sender
    me = Party(account=call.account, label=sender.display_name, conversation=call.message.conversation)
    return Speaker(me=me, user_id=call.user_id, turn_id=call.turn_id)


def _one_line(text: str) -> str:
    return " ".join(text.split())
