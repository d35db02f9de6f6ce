"""Letting people in: a stranger is given a code, an owner says yes to it. And how somebody becomes the owner.

A stranger costs little and learns nothing: three at most wait on a channel, each is given a few codes a day, and what
they say is answered only after the yes. The identity map gets no entry before that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gateway.domain.codes import code_of, hash_code, is_same, new_code, new_seed, read_code
from gateway.domain.command_text import parse_command
from gateway.domain.roles import Role
from gateway.domain.visible import as_name
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage
from gateway.people.access import Access, Entry
from gateway.people.access_records import (
    AccessRecords,
    ClaimOwner,
    KeepRequest,
    LetIn,
    OfferOwner,
    PeopleChange,
    PeopleStore,
    Reopen,
    Request,
    TurnAway,
)
from gateway.people.identity.file import clean_label
from gateway.people.identity.identities import Identities
from gateway.people.linking.links import Party
from gateway.people.operators import Operators
from gateway.people.tries import OWNER_TRIES_WITHIN_S, OwnerTries

CODE_LIFETIME = timedelta(hours=1)
WAITING_PER_CHANNEL = 3
CODES_PER_DAY = 3
REPEAT_AFTER = timedelta(minutes=10)
REFUSED_FOR = timedelta(days=7)
HELD_MESSAGES = 10
LABEL_CHARS = 60
# Strangers that are remembered for not being told a thing again and again; the oldest are forgotten.
_REMEMBERED = 10_000

_DAY = timedelta(days=1)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionReply:
    """What becomes of a message that gets no turn.

    Attributes:
        text: the answer to its writer, None where they get none.
        kind: of the answer, for its id.
        codes: in the answer.
        notices: for others.
    """

    text: str | None = None
    kind: str = "reply"
    codes: tuple[str, ...] = ()
    notices: tuple[OutboundMessage, ...] = ()
    change: PeopleChange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an owner decided, to be committed.

    Attributes:
        channel: of the request.
        account: of the stranger, `kind:id`.
        text: for the owner.
        notices: for the stranger.
        woken: conversations in which messages get their turn now.
    """

    channel: str
    account: str
    text: str
    change: PeopleChange
    notices: tuple[OutboundMessage, ...] = ()
    woken: tuple[ConversationRef, ...] = ()


class Pairing:
    """Answers strangers, and does what owners decide about them."""

    def __init__(
        self,
        store: PeopleStore,
        people: AccessRecords,
        access: Access,
        identities: Identities,
        *,
        pepper: Callable[[], bytes],
        operators: Operators,
        tries: OwnerTries,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._store = store
        self._people = people
        self._access = access
        self._identities = identities
        self._pepper = pepper
        self._operators = operators
        self._tries = tries
        self._now = now
        self._told: OrderedDict[str, datetime] = OrderedDict()
        self._offered: str | None = None  # in memory only; the database has its hash
        self.lock = asyncio.Lock()
        """To be held from a decision to its commit, so that the limits hold however many write at once."""

    # ---- strangers --------------------------------------------------------------------------------------------------

    async def meet(self, message: InboundMessage, entry: Entry, turn_id: str) -> AdmissionReply:
        """What a message comes to that is not answered by the agent."""
        match entry.verdict:
            case "pair" | "link":
                return await self._asked(message, entry.account, turn_id)
            case "claim":
                return await self._claimed(message, entry.account, turn_id)
            case "refuse" | "revoked":
                return AdmissionReply(text=self._refusal(message, entry))
        return AdmissionReply()

    def _refusal(self, message: InboundMessage, entry: Entry) -> str | None:
        """Names only the stranger's own account."""
        if not message.sender.is_verified:
            return "I cannot tell who wrote this, so I do not answer it."
        if not self.may_tell(entry.account):
            return None
        channel = message.conversation.channel
        if entry.verdict == "revoked":
            return "You are not let in any more, so I do not answer. The owner of this gateway can change that."
        if self._access.rules[channel].mode == "owner":
            return "I answer the owners of this gateway only."
        return (
            "I do not know you yet, so I do not answer. Ask the owner of this gateway to add your account "
            f"`{message.sender.user}` to `allow` of the channel `{channel}`."
        )

    async def _asked(self, message: InboundMessage, account: str, turn_id: str) -> AdmissionReply:
        channel, now = message.conversation.channel, self._now()
        requests = [one for one in await self._store.requests() if one.channel == channel]
        mine = next((one for one in requests if one.account == account), None)
        if mine is not None and mine.expires_at > now:
            return self._again(message, mine, now)
        is_same_day = mine is not None and mine.first_at > now - _DAY
        if mine is not None and is_same_day and mine.times >= CODES_PER_DAY:
            return AdmissionReply()  # has had enough codes for today
        if sum(one.state == "waiting" and one.expires_at > now for one in requests) >= WAITING_PER_CHANNEL:
            return AdmissionReply(text=_FULL if self.may_tell(account) else None)
        request = Request(
            channel=channel,
            account=account,
            label=clean_label(message.sender.display_name)[:LABEL_CHARS],
            conversation=message.conversation,
            seed=new_seed(),
            state="waiting",
            times=mine.times + 1 if mine is not None and is_same_day else 1,
            first_at=mine.first_at if mine is not None and is_same_day else now,
            asked_at=now,
            expires_at=now + CODE_LIFETIME,
            told_at=now,
            held=0 if mine is None else mine.held,
        )
        code = self.code(request)
        return AdmissionReply(
            text=_your_code(code),
            kind="pairing",
            codes=(code,),
            notices=await self._notices(request, code, turn_id),
            change=KeepRequest(request=request, is_held=request.held < HELD_MESSAGES),
        )

    def _again(self, message: InboundMessage, mine: Request, now: datetime) -> AdmissionReply:
        """Somebody writes who has a code already, or was refused."""
        if mine.state == "refused":
            return AdmissionReply()
        is_told = mine.told_at <= now - REPEAT_AFTER
        is_held = mine.held < HELD_MESSAGES
        if not is_told and not is_held:
            return AdmissionReply()
        told = replace(mine, told_at=now if is_told else mine.told_at, conversation=message.conversation)
        code = self.code(mine)
        return AdmissionReply(
            text=_your_code(code) if is_told else None,
            kind="pairing",
            codes=(code,),
            change=KeepRequest(request=told, is_held=is_held),
        )

    def code(self, request: Request) -> str:
        """The code of a request, as it is shown."""
        return code_of(request.seed, self._pepper())

    def proof(self, request: Request, role: Role | None, account: str) -> str:
        """What an owner sends back who decides by letter, so that a forged letter lets no stranger in."""
        return code_of(f"{request.seed} {role} {account}", self._pepper())

    async def _notices(self, request: Request, code: str, turn_id: str) -> tuple[OutboundMessage, ...]:
        """For every owner."""
        return tuple(
            _notice(request, code, conversation, f"{turn_id}.notice-{number}")
            for number, conversation in enumerate(await self.owner_chats())
        )

    async def owner_chats(self) -> Sequence[ConversationRef]:
        """For every owner the direct chat that one of the owner's accounts used last."""
        snapshot = await self._people.snapshot()
        accounts = {account for account, rank in snapshot.ranks.items() if rank == "owner"} | set(
            self._operators.accounts()
        )
        known = await self._identities.known({*accounts, *snapshot.chats})
        owners = {known[account] for account in accounts if account in known}
        users = [(known.get(account), chat) for account, chat in snapshot.chats.items()]
        chats = {user: chat for user, chat in users if user in owners}  # of each the last
        return [conversation for _, conversation in sorted(chats.items())]

    def may_tell(self, account: str) -> bool:
        """Whether a stranger is to be told again, which is not too often."""
        now = self._now()
        last = self._told.get(account)
        if last is not None and last > now - REPEAT_AFTER:
            return False
        self._told[account] = now
        self._told.move_to_end(account)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return True

    async def is_refused(self, channel: str, account: str) -> bool:
        """Whether an owner has said no to the account on this channel, and not long ago."""
        now = self._now()
        return any(
            one.state == "refused" and one.expires_at > now and (one.channel, one.account) == (channel, account)
            for one in await self._store.requests()
        )

    async def is_barred(self, party: Party) -> bool:
        """Whether an owner has refused the account where it writes, or revoked the access of its person."""
        place, account = party.conversation, party.account
        if place is None or not await self.is_refused(place.channel, account):
            return await self._access.is_revoked(account)
        return not await self._access.lets_in(place.channel, account)

    async def reopen(self, account: str) -> Sequence[ConversationRef]:
        """The account is let in now without a yes to its request: where its messages get their turn."""
        woken: list[ConversationRef] = []
        for request in await self._store.requests():
            if request.account == account and await self._access.lets_in(request.channel, account):
                woken += await self._store.held_in(request.channel, account)
                await self._store.change(Reopen(channel=request.channel, account=account))
        return woken

    # ---- the owner --------------------------------------------------------------------------------------------------

    async def offer_owner(self) -> str:
        """A new code by which an account becomes an owner's; any earlier one is void."""
        code = new_code()
        change = OfferOwner(code_hash=hash_code(code, self._pepper()), expires_at=self._now() + CODE_LIFETIME)
        await self._store.change(change)
        self._offered = code
        return code

    async def standing_owner_code(self) -> str | None:
        """The code that was offered last, if that was here and it is still good."""
        if self._offered is None:
            return None
        offered = await self._store.owner_code(self._now())
        return (
            self._offered
            if offered is not None and is_same(hash_code(self._offered, self._pepper()), offered)
            else None
        )

    async def write_down(self, account: str, label: str) -> Sequence[str]:
        """Give an owner a user id, where there is none yet; returns all accounts of that owner."""
        user_id = await self._identities.resolve(account, label)
        return [one.key for one in await self._identities.accounts_of(user_id)]

    async def linked_to(self, account: str) -> Sequence[str]:
        """All accounts of the person who has this one, itself among them; none where the person has no user id."""
        user_id = (await self._identities.known({account})).get(account)
        return [] if user_id is None else [one.key for one in await self._identities.accounts_of(user_id)]

    async def _claimed(self, message: InboundMessage, account: str, turn_id: str) -> AdmissionReply:
        now = self._now()
        if not await self._tries.take(account, turn_id):
            return AdmissionReply(text=_WAIT if self.may_tell(account) else None)
        command = parse_command(message)
        code = read_code("" if command is None else command.arguments)
        offered = await self._store.owner_code(now)
        if code is not None and offered is not None and is_same(hash_code(code, self._pepper()), offered):
            await self._tries.forget(account)
            others = [one for one in await self.waiting() if one.account != account]
            notices = tuple(
                _notice(one, self.code(one), message.conversation, f"{turn_id}.notice-{number}")
                for number, one in enumerate(others)
            )
            return AdmissionReply(text=_OWNER, notices=notices, change=ClaimOwner(account=account, at=now))
        return AdmissionReply(text=_NO_OWNER_CODE)

    # ---- decisions --------------------------------------------------------------------------------------------------

    async def waiting(self) -> Sequence[Request]:
        """Who waits for a yes, oldest first."""
        now = self._now()
        return [one for one in await self._store.requests() if one.state == "waiting" and one.expires_at > now]

    async def find(self, named: str) -> Request | None:
        """The waiting request with this code, or of this account, `kind:id`; None where there is none."""
        waiting, code = await self.waiting(), read_code(named)
        for request in waiting:
            if code is not None and is_same(code, self.code(request)):
                return request
        mine = [request for request in waiting if request.account == named]
        return mine[0] if mine else None

    async def let_in(self, request: Request, *, role: Role | None, via: str, notice_id: str) -> Decision:
        """Say yes to a request, with its code."""
        woken = await self._store.held_in(request.channel, request.account)
        who, now = _named(request), self._now()
        change = LetIn(
            channel=request.channel, account=request.account, label=request.label, role=role, via=via, at=now
        )
        notice = OutboundMessage(id=notice_id, conversation=request.conversation, text=_LET_IN)
        text = f"{who} is let in on the channel `{request.channel}`{f', as {_a(role)}' if role else ''}."
        return Decision(
            channel=request.channel,
            account=request.account,
            text=text,
            change=change,
            notices=(notice,),
            woken=tuple(woken),
        )

    def refuse(self, request: Request, *, notice_id: str) -> Decision:
        """Say no; the stranger gets no other code for some days."""
        change = TurnAway(channel=request.channel, account=request.account, until=self._now() + REFUSED_FOR)
        notice = OutboundMessage(id=notice_id, conversation=request.conversation, text=_REFUSED)
        text = f"{_named(request)} is refused, and can ask again in {REFUSED_FOR.days} days."
        return Decision(channel=request.channel, account=request.account, text=text, change=change, notices=(notice,))


def _a(role: Role) -> str:
    return f"an {role}" if role == "owner" else f"a {role}"


def _named(request: Request) -> str:
    """The account, and what it calls itself."""
    called = f" (which calls itself {as_name(request.label)})" if request.label else ""
    return f"`{request.account.replace('`', chr(39))}`{called}"


def _your_code(code: str) -> str:
    minutes = round(CODE_LIFETIME.total_seconds() / 60)
    return (
        f"I do not know you yet. Your code is **{code}**. Give it to the owner of this gateway, within {minutes} "
        f"minutes. I keep your first {HELD_MESSAGES} messages, and answer them once you are let in."
    )


def _notice(request: Request, code: str, conversation: ConversationRef, notice_id: str) -> OutboundMessage:
    """The message to one owner."""
    return OutboundMessage(
        id=notice_id,
        conversation=conversation,
        text=_somebody_asks(request, code),
        actions=(
            Action(id=f"pair approve {code}", label="Let in"),
            Action(id=f"pair refuse {code}", label="Refuse"),
        ),
        codes=(code,),
    )


def _somebody_asks(request: Request, code: str) -> str:
    return (
        f"{_named(request)} wants to talk to me on the channel `{request.channel}`. Anybody can choose that name: "
        f"ask the person for their code, which is **{code}**.\n\n"
        f"- `/pair {code}` lets them in, `/pair {code} guest` as a guest.\n"
        f"- `/pair refuse {code}` refuses."
    )


_FULL = "I do not know you yet, and too many others wait to be let in. Please write again in an hour."
_LET_IN = "You are let in. I answer what you wrote."
_REFUSED = "The owner of this gateway did not let you in."
_OWNER = (
    "You are an owner of this gateway now: you are let in everywhere, and say who else is. `/pair` shows who waits, "
    "`/help` shows the rest."
)
_NO_OWNER_CODE = (
    "This is not the code, or its time is over. `ethos people owner-code`, typed on the machine of the gateway, makes "
    "a new one; then send me `/owner` and the code."
)
_WAIT = f"Too many wrong codes. Try again in {round(OWNER_TRIES_WITHIN_S / 60)} minutes."
