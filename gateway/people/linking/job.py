"""Carries out what was decided: a link, or its end. Durable, in small steps, each of which may be repeated.

The decision is one commit. Then the identity map, then the memory (where it can unite two people), then both sides are
told and the link is done, in one commit again. A crash between any two steps is made good at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from gateway.domain.channels import Channels
from gateway.errors import FileError, IdentityMapBroken, MemoryUnavailable, StoreError
from gateway.messages import OutboundMessage
from gateway.people.identity.file import Move
from gateway.people.identity.identities import Identities
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.people.linking.links import UNFINISHED, AppliesMemory, Link, LinkState, LinkStore, SendsReplies
from gateway.people.linking.texts import in_form, linked, unlinked
from gateway.protocols import MemoryProvider, SupportsUnion

RETRY_S = 5.0
# A union reads and writes a few documents; one that takes longer is tried again.
MEMORY_S = 30.0

T = TypeVar("T")
_log = structlog.get_logger(__name__)
_TRY_AGAIN = (FileError, MemoryUnavailable, StoreError, IdentityMapBroken, OSError)


class LinkJob:
    """Brings links to their end, one after another or at the same time.

    Attributes:
        when_linked: called when the map and the memory say it, before both sides are told; perhaps again after a crash.
        when_parted: the same for the end of a link.
    """

    def __init__(
        self,
        store: LinkStore,
        accounts: Identities,
        people: LinkedIdentities,
        *,
        memory: MemoryProvider,
        applied: AppliesMemory,
        outbox: SendsReplies,
        channels: Channels,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._people = people
        self._memory = memory
        self._applied = applied
        self._outbox = outbox
        self._channels = channels
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.when_linked: list[Callable[[Link], Awaitable[None]]] = []
        self.when_parted: list[Callable[[Link], Awaitable[None]]] = []

    async def recover(self) -> int:
        """For a start: learn what counts, and finish what an earlier process left; how many links that were.

        What cannot be finished now is tried again later, and holds up no other link.
        """
        left = [link for link in await self._people.load() if link.state in UNFINISHED]
        for link in left:
            if not await self._is_carried_out(link.id, link):
                self.begin(link)
        return len(left)

    def begin(self, link: Link) -> None:
        """Carry it out in the background, however often it must be tried."""
        if link.id not in self._tasks:
            task = asyncio.create_task(self._persist(link.id), name=f"link {link.id}")
            self._tasks[link.id] = task
            task.add_done_callback(lambda _task: self._tasks.pop(link.id, None))

    async def finished(self, link_id: str, timeout_s: float) -> None:
        """Return when what was begun is done, or that time is over; it goes on then."""
        task = self._tasks.get(link_id)
        if task is not None:
            await asyncio.wait([task], timeout=timeout_s)

    async def close(self) -> None:
        """Stop; the next start goes on."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _persist(self, link_id: str) -> None:
        while True:
            if await self._is_carried_out(link_id):
                return
            await asyncio.sleep(RETRY_S)

    async def _is_carried_out(self, link_id: str, link: Link | None = None) -> bool:
        """Take all steps that are left; False where one failed, and is to be tried again."""
        try:
            link = link or await self._store.link(link_id)
            while link is not None and link.state in UNFINISHED:
                link = await self._step(link)
        except _TRY_AGAIN as error:
            _log.error("link_not_carried_out", link_id=link_id, error=str(error), retry_s=RETRY_S)
        except Exception:  # noqa: BLE001 (whatever fault it is, what was decided is not dropped, and others are not held up)
            _log.exception("link_fault", link_id=link_id, retry_s=RETRY_S)
        else:
            return True
        return False

    async def _step(self, link: Link) -> Link:
        match link.state:
            case "decided":
                living = self._people.successors(link.survivor)[-1]
                via = f"link-{link.by}"
                await self._accounts.move(
                    {one.key: Move(from_users=(link.absorbed,), to_user=living, via=via) for one in link.accounts}
                )
                return await self._advance(link, "mapped")
            case "mapped":
                await self._people.wait_until_absent(link.absorbed)  # a turn as that user may still write notes
                await self._unite(link)
                for listener in self.when_linked:
                    await listener(link)
                return await self._advance(link, "linked", linked(link, is_united=self.unites))
            case "undoing":
                successors = tuple(self._people.successors(link.survivor))
                await self._accounts.move(
                    {one.key: Move(from_users=successors, to_user=link.absorbed, via=one.via) for one in link.accounts}
                )
                return await self._advance(link, "parted")
            case _:
                is_changed = await self._part(link)
                for listener in self.when_parted:
                    await listener(link)
                return await self._advance(link, "undone", unlinked(link, is_changed=is_changed))

    @property
    def unites(self) -> bool:
        """Whether what is remembered of both people comes together; else it stays apart."""
        return isinstance(self._memory, SupportsUnion)

    async def _unite(self, link: Link) -> None:
        if not isinstance(self._memory, SupportsUnion):
            return
        if await self._applied.is_behind(link.absorbed):  # a full disk, a server that is away: both are tried again
            raise MemoryUnavailable(f"what {link.absorbed} noted last is not in the memory yet")
        await _within_time(self._memory.unite(link.id, link.survivor, link.absorbed))

    async def _part(self, link: Link) -> bool:
        """Whether something has changed since the link, that stays with the survivor."""
        if not isinstance(self._memory, SupportsUnion):
            return True
        successors = self._people.successors(link.survivor)
        return await _within_time(self._memory.part(link.id, link.survivor, link.absorbed, successors))

    async def _advance(self, link: Link, state: LinkState, told: Sequence[OutboundMessage] = ()) -> Link:
        await self._store.advance(link.id, state, [in_form(message, self._channels) for message in told])
        link = replace(link, state=state)
        self._people.note(link)
        _log.info("link_step", link_id=link.id, state=state)
        for message in told:
            self._outbox.wake(message.conversation)
        return link


async def _within_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(MEMORY_S):
            return await work
    except TimeoutError as error:
        raise MemoryUnavailable(f"the memory has not answered within {MEMORY_S:g} s") from error
