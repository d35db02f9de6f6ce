"""`/link` and `/unlink`: how a person says, from both sides, that both accounts belong to them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.domain.channels import Channels
from gateway.domain.codes import code_of, hash_code, new_code, read_code
from gateway.domain.sessions import LOCAL, OPERATOR_ACCOUNT
from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.identity.identities import Identities, User
from gateway.people.linking import texts as words
from gateway.people.linking.job import LinkJob
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.people.linking.links import (
    UNFINISHED,
    AccountBefore,
    AppliesMemory,
    Link,
    LinkGuard,
    LinkRequest,
    LinkStore,
    NotLinked,
    OwnCode,
    Party,
    RequestState,
    SendsReplies,
    TooManyTries,
    Wrong,
)
from gateway.protocols import MemoryProvider

FINISH_S = 20.0
_LIVE: Collection[RequestState] = ("open", "asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAnswer:
    """What is answered.

    Attributes:
        link: to be carried out once the answer is committed.
        codes: in the answer.
        is_heard: False where the account has guessed too often, and nothing was looked at.
    """

    text: str
    link: Link | None = None
    codes: tuple[str, ...] = ()
    is_heard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who typed a command, in a direct chat.

    Attributes:
        turn_id: makes a repetition after a crash harmless.
    """

    me: Party
    user_id: str
    turn_id: str


class Linking:
    """The protocol between two accounts, and all that belongs to it."""

    def __init__(
        self,
        store: LinkStore,
        accounts: Identities,
        *,
        memory: MemoryProvider,
        applied: AppliesMemory,
        pepper: Callable[[], Awaitable[bytes]],
        channels: Channels,
        outbox: SendsReplies,
        guard: LinkGuard,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        code: Callable[[], str] = new_code,
    ) -> None:
        """Nothing is read yet.

        Args:
            memory: where it can unite people, a link does that.
            applied: knows whether the memory has what turns have committed.
            pepper: what codes are hashed with.
            guard: is asked at the yes.
            code: makes a code, as it is shown.
        """
        self._store = store
        self._accounts = accounts
        self.people = LinkedIdentities(accounts, store)
        self.job = LinkJob(
            store, accounts, self.people, memory=memory, applied=applied, outbox=outbox, channels=channels
        )
        self._pepper = pepper
        self._channels = channels
        self._outbox = outbox
        self._guard = guard
        self._now = now
        self._code = code
        self._deciding = asyncio.Lock()  # between reading the map and committing what follows from it

    async def link(self, arguments: str, speaker: Speaker) -> LinkAnswer:
        """`/link`, `/link CODE`, `/link yes`, `/link no`; the last two perhaps with the question's id."""
        word, _, request_id = arguments.lower().partition(" ")
        match word:
            case "":
                return await self._start(speaker)
            case "yes":
                return await self._confirm(request_id.strip(), speaker)
            case "no":
                return await self._refuse(request_id.strip(), speaker.me.account)
        code = read_code(arguments)
        if code is None:
            return LinkAnswer(text=words.NOT_A_CODE)
        return await self._redeem(code, speaker.me, speaker.turn_id)

    async def redeem_as_stranger(self, arguments: str, me: Party, turn_id: str) -> LinkAnswer | None:
        """`/link CODE` and `/link no` of somebody who is not let in here; None where it is neither.

        A code can be had only by those who are let in, and only they can say yes. A stranger can begin nothing.
        """
        code = read_code(arguments)
        if code is not None:
            return await self._redeem(code, me, turn_id)
        word, _, request_id = arguments.lower().partition(" ")
        requests = await self._requests(request_id.strip(), me.account) if word == "no" else ()
        is_asked = any(one.state in _LIVE and one.starter.account != me.account for one in requests)
        return await self._refuse(request_id.strip(), me.account) if is_asked else None

    async def unlink(self, arguments: str, speaker: Speaker) -> LinkAnswer:
        """`/unlink`, or `/unlink account`: take the newest link back, or the one that brought the account."""
        if (refusal := self._refusal(speaker.me, words.NOT_BY_LETTER)) is not None:
            return refusal
        wanted, now = arguments.strip("` "), self._now()
        links = await self.links_of(speaker.user_id)
        for link in links if wanted else reversed(links):  # an account came in with the oldest that names it
            is_wanted = not wanted or wanted in (link.id, *(account.key for account in link.accounts))
            if is_wanted and now < link.undo_until:
                return await self._end(link)
        return LinkAnswer(text=words.NOTHING_TO_UNDO)

    async def links_of(self, user_id: str) -> Sequence[Link]:
        """The links that made this person, oldest first."""
        ids = set(await self._store.person_ids(user_id))
        return [link for link in await self._store.links() if link.absorbed in ids and link.undone_at is None]

    async def whoami(self, user_id: str) -> Sequence[str]:
        """A line for each link."""
        now = self._now()
        return [words.link_line(link, now) for link in await self.links_of(user_id)]

    async def decide(
        self, one: str, other: str, parties: tuple[Party, ...], *, by: str, request_id: str | None, is_one_kept: bool
    ) -> Link:
        """Commit that two accounts, or users, are one person's.

        Args:
            one: an account or a user id.
            other: another one.
            parties: who is told.
            by: stands in the identity map behind `link-`.
            request_id: as `LinkStore.decide` has it.
            is_one_kept: the user of `one` survives, even if it is the newer one.

        Raises:
            NotLinked: they are one already, one is not known, or one is part of a change that goes on.
        """
        async with self._deciding:
            users = await self._accounts.users()
            first, second = _find(users, one), _find(users, other)
            if first is None or second is None:
                raise NotLinked(words.GONE)
            if first.id == second.id:
                raise NotLinked(words.ALREADY_ONE)
            survivor, absorbed = (first, second) if is_one_kept or _is_older(users, first, second) else (second, first)
            link = Link(
                id=f"l_{secrets.token_hex(8)}",
                survivor=survivor.id,
                absorbed=absorbed.id,
                accounts=tuple(AccountBefore(key=account.key, via=account.via) for account in absorbed.accounts),
                parties=parties,
                by=by,
                linked_at=self._now(),
            )
            decided = await self._store.decide(link, request_id=request_id)
            if decided is None:
                raise NotLinked(words.BUSY)
            self.people.note(decided)
            return decided

    async def whereabouts(self, user: User) -> Party:
        """One account of the user, where there is a place to tell it something alone; else the first one."""
        kinds = self._channels.kinds
        for account in user.accounts:
            kind, _, sender = account.key.partition(":")
            names = [channel for channel, its_kind in kinds.items() if its_kind == kind]
            place = await self._store.direct_conversation(names, sender)
            if place is not None:
                return Party(account=account.key, label=account.label, conversation=place)
        return Party(account=user.accounts[0].key, label=user.accounts[0].label, conversation=None)

    def is_only_claimed(self, place: ConversationRef | None) -> bool | None:
        """Whether an account there is only what a letter says of itself; None where that is not known now."""
        capabilities = None if place is None else self._channels.capabilities(place.channel)
        return None if capabilities is None else capabilities.is_sender_only_claimed

    async def user(self, wanted: str) -> User:
        """The user with this id or account.

        Raises:
            NotLinked: there is none.
        """
        found = _find(await self._accounts.users(), wanted)
        if found is None:
            raise NotLinked(f"there is no user {wanted}; `ethos people list` shows everybody")
        return found

    async def finish(self, link: Link) -> Link:
        """Wait until a link is carried out, `FINISH_S` at most; how far it is."""
        self.job.begin(link)
        await self.job.finished(link.id, FINISH_S)
        return await self._store.link(link.id) or link

    async def settle(self, user_ids: Collection[str]) -> None:
        """Wait until nothing that was decided about these users is still being carried out.

        Raises:
            NotLinked: it takes too long now; it goes on.
        """
        for link in await self._store.links():
            if link.state in UNFINISHED and not {link.survivor, link.absorbed}.isdisjoint(user_ids):
                finished = await self.finish(link)
                if finished.state in UNFINISHED:
                    raise NotLinked(f"link {link.id} is still being carried out")

    async def end(self, link: Link) -> Link | None:
        """Commit that a link ends; None where it is not carried out yet, or has ended."""
        ended = await self._store.undo(link.id)
        if ended is not None:
            self.people.note(ended)
        return ended

    # ---- the steps of /link -----------------------------------------------------------------------------------------

    async def _start(self, speaker: Speaker) -> LinkAnswer:
        if (refusal := self._refusal(speaker.me, words.ONLY_CLAIMED)) is not None:
            return refusal
        code = self._code()
        request = LinkRequest(id=f"r_{secrets.token_hex(6)}", starter=speaker.me)
        await self._store.start(request, await self._hash(code))
        return LinkAnswer(text=words.code_given(code, self._channels.all.values()), codes=(code,))

    async def _redeem(self, code: str, me: Party, turn_id: str) -> LinkAnswer:
        """Use a code up. Where a letter brought it, its sender first returns a second one, which our answer holds.

        A person who forges the letter does not get the answer. Otherwise the holder of the first code would only
        have to forge one, and would then be asked themselves.
        """
        is_claimed = self.is_only_claimed(me.conversation)
        if is_claimed is None or _is_program(me.account):
            return LinkAnswer(text=words.NOT_KNOWN_NOW if is_claimed is None else words.NOT_BY_PROGRAM)
        second = code_of(f"link {turn_id}", await self._pepper())  # the same one, should the turn be repeated
        outcome = await self._store.redeem(
            await self._hash(code),
            me,
            turn_id=turn_id,
            second_hash=await self._hash(second) if is_claimed else None,
            question=lambda request: words.in_form(words.question(request, is_united=self.job.unites), self._channels),
        )
        match outcome:
            case Wrong(tries_left=left):
                return LinkAnswer(text=words.wrong_code(left))
            case TooManyTries(again_in_s=again_in_s):
                return LinkAnswer(text=words.too_many(again_in_s), is_heard=False)
            case OwnCode():
                return LinkAnswer(text=words.OWN_CODE)
        return self._typed(outcome, second)

    def _typed(self, request: LinkRequest, second: str) -> LinkAnswer:
        """The code was right."""
        if request.state == "open":
            return LinkAnswer(text=words.prove(request, second), codes=(second,))
        if request.state not in {"asked", "linked"}:  # the turn is repeated late
            return LinkAnswer(text=words.OVER)
        if request.starter.conversation is not None:
            self._outbox.wake(request.starter.conversation)
        return LinkAnswer(text=words.asked(request))

    async def _confirm(self, request_id: str, speaker: Speaker) -> LinkAnswer:
        if (refusal := self._refusal(speaker.me, words.ONLY_CLAIMED)) is not None:
            return refusal
        account = speaker.me.account
        requests = await self._requests(request_id, account)
        mine = [request for request in requests if request.starter.account == account]
        if not mine:
            return LinkAnswer(text=words.NOT_STARTER if requests else words.NOTHING_ASKED)
        request = mine[0]
        if request.link_id is not None:  # pressed twice, or the turn is repeated after a crash
            return _said_yes(await self._store.link(request.link_id))
        if request.state != "asked" or request.redeemer is None:
            return LinkAnswer(text=words.NOT_TYPED_YET if request.state == "open" else words.NOTHING_ASKED)
        async with self._guard.lock:
            return await self._link(request, request.redeemer)

    async def _link(self, request: LinkRequest, redeemer: Party) -> LinkAnswer:
        """The yes was said."""
        sides = (request.starter, redeemer)
        for party in sides:
            if await self._guard.is_barred(party):
                return LinkAnswer(text=words.barred(party.account))
        # A stranger who typed the code stands in no map before this yes.
        await self._accounts.resolve(redeemer.account, redeemer.label)
        try:
            link = await self.decide(
                request.starter.account,
                redeemer.account,
                sides,
                by="code",
                request_id=request.id,
                is_one_kept=False,
            )
        except NotLinked as problem:
            return LinkAnswer(text=str(problem))
        return LinkAnswer(text=words.LINKING, link=link)

    async def _refuse(self, request_id: str, me: str) -> LinkAnswer:
        """Either side may: who typed somebody else's code can step back from it."""
        requests = await self._requests(request_id, me)
        live = [one for one in requests if one.state in _LIVE]
        request = next(iter(live or [one for one in requests if one.state == "refused"]), None)
        if request is None or not await self._store.refuse(request.id, lambda found: self._refused(found, me)):
            return LinkAnswer(text=words.NOTHING_ASKED)
        for party in (request.starter, request.redeemer):
            if party is not None and party.account != me and party.conversation is not None:
                self._outbox.wake(party.conversation)
        return LinkAnswer(text=words.REFUSED)

    async def _requests(self, request_id: str, account: str) -> Sequence[LinkRequest]:
        """Those of the account, newest first; only the one that is meant, where a button says which."""
        requests = await self._store.requests_of(account)
        return [request for request in requests if request_id in {"", request.id}]

    async def _end(self, link: Link) -> LinkAnswer:
        ended = await self.end(link)
        return LinkAnswer(text=words.BUSY) if ended is None else LinkAnswer(text=words.UNLINKING, link=ended)

    def _refused(self, request: LinkRequest, by: str) -> OutboundMessage | None:
        word = words.refused(request, by)
        return None if word is None else words.in_form(word, self._channels)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _refusal(self, me: Party, text: str) -> LinkAnswer | None:
        """Why the channel's word is not enough for this; None where it is."""
        if _is_program(me.account):
            return LinkAnswer(text=words.NOT_BY_PROGRAM)
        is_claimed = self.is_only_claimed(me.conversation)
        if is_claimed is None:
            return LinkAnswer(text=words.NOT_KNOWN_NOW)
        return LinkAnswer(text=text) if is_claimed else None

    async def _hash(self, code: str) -> str:
        return hash_code(code, await self._pepper())


def _is_program(account: str) -> bool:
    """Whether it holds an API key only: an account that it links would stay linked once the key is revoked."""
    kind, _, sender = account.partition(":")
    return kind == LOCAL and sender != OPERATOR_ACCOUNT


def _said_yes(link: Link | None) -> LinkAnswer:
    """To a second yes: what became of the first."""
    if link is None or link.undone_at is not None:
        return LinkAnswer(text=words.NOTHING_ASKED)
    if link.state in UNFINISHED:
        return LinkAnswer(text=words.LINKING, link=link)
    return LinkAnswer(text=words.LINKED_ALREADY)


def _find(users: Sequence[User], wanted: str) -> User | None:
    for user in users:
        if wanted == user.id or any(account.key == wanted for account in user.accounts):
            return user
    return None


def _is_older(users: Sequence[User], one: User, other: User) -> bool:
    """Whether `one` was there first: an account without a time was put into the map by hand, and counts as older."""

    def age(user: User) -> tuple[datetime, int]:
        never = datetime.min.replace(tzinfo=UTC)
        return min(account.first_seen_at or never for account in user.accounts), users.index(user)

    return age(one) < age(other)
