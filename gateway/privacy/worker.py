"""Privacy in a running gateway: exports and erasures that people ask for, and forgetting by age once a day."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from gateway.errors import EthosError
from gateway.messages import Attachment, ConversationRef
from gateway.observe import happened
from gateway.personal import Exported
from gateway.presence import Presence
from gateway.privacy.erasing import Eraser
from gateway.privacy.export import Exporter, prepare_place
from gateway.privacy.files import EXPORTS_NAME
from gateway.privacy.people import is_known
from gateway.privacy.retention import Retention
from gateway.privacy.tombstones import Tombstone
from gateway.sessions import PROGRAMS
from gateway.store.erasure import applied_erasures, sessions_of

if TYPE_CHECKING:
    from gateway.composing import Composition

FAREWELL_S = 30.0
"""How long an erasure waits for its last word to be sent; then it goes unsent."""
AGAIN_S = 60.0
EVERY_S = 86_400.0

_log = structlog.get_logger(__name__)
_FAULTS = (EthosError, OSError, sqlite3.Error)


class PrivacyWorker:
    """One gateway's; it is the `PersonalData` of its commands."""

    def __init__(self, gateway: Composition) -> None:
        """Nothing is read yet; the gateway need not be put together."""
        self._gateway = gateway
        self.presence = Presence()
        self._farewells: dict[str, str] = {}  # by the erasure's id, the reply that is sent first
        self._asked = asyncio.Event()
        self._sent = asyncio.Event()
        self._erased = asyncio.Event()

    # ---- what people ask for ----------------------------------------------------------------------------------------

    async def export(self, user_id: str, conversation: ConversationRef) -> Exported:
        """Write everything about a person into one file, to be sent in the conversation."""
        gateway = self._gateway
        name, size_bytes = await self.write_export(user_id)
        path = gateway.home / name
        adapter = gateway.supervisor.adapter_if_up(conversation.channel)
        most_bytes = 0 if adapter is None else adapter.capabilities.max_attachment_bytes
        attachment = Attachment(media_type="application/zip", filename=path.name, size_bytes=size_bytes, ref=str(path))
        return Exported(
            attachment=attachment if size_bytes <= most_bytes else None,
            place=name,
            size_bytes=size_bytes,
            path=path if adapter and adapter.kind not in gateway.operators.kinds_of_others() else None,
        )

    async def write_export(self, user_id: str) -> tuple[str, int]:
        """Write everything about a person into a new file: its path in the data directory, and its size in bytes.

        Raises:
            FileError: there is no room for it.
        """
        gateway = self._gateway
        exporter = Exporter(home=gateway.home, store=gateway.store, identities=gateway.identities, kinds=self._kinds())
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        name = f"{EXPORTS_NAME}/{user_id}/ethos-export-{stamp}.zip"
        path = await asyncio.to_thread(prepare_place, gateway.home / name)
        return name, await exporter.write(user_id, path)

    async def bury(self, user_id: str, farewell_id: str) -> None:
        """Decide, durably, that a person is erased; it is done once their last reply was sent, or soon after."""
        tombstone = await self.eraser().bury(user_id)
        self._farewells[tombstone.id] = farewell_id
        self._asked.set()

    async def erase(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The operator wants somebody erased; answers with the erasure's id, which the database has when it is done."""
        tombstone = await self.eraser().bury(str(request["user"]))
        self._asked.set()
        return {"erasure": tombstone.id}

    async def is_known(self, account: str) -> bool:
        """Whether anything is kept of an account, `kind:id`, though it may be no user's."""
        return await self._gateway.store.database.read(partial(is_known, key=account, kinds=self._kinds()))

    async def is_erased(self, erasure_id: str, *, wait_s: float) -> bool:
        """Whether an erasure is done; waits for it so long at the most."""
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    ended = self._erased
                    if erasure_id in await self._gateway.store.database.read(applied_erasures):
                        return True
                    await ended.wait()
        except TimeoutError:
            return False

    def sent(self) -> None:
        """A reply was sent, somewhere."""
        self._sent.set()

    # ---- the work ---------------------------------------------------------------------------------------------------

    async def clean(self) -> None:
        """For a start: finish what was broken off, and erase anew whom an old backup has brought back.

        Raises:
            EthosError, OSError: it could not be done; the gateway must not serve them.
        """
        eraser = self.eraser()
        for tombstone in await eraser.due():
            await eraser.erase(tombstone)

    async def run(self) -> None:
        """Erase when somebody asks, and forget by age at the start and once a day, until cancelled."""
        clock = asyncio.get_running_loop().time
        sweep_at = clock()
        while True:
            if clock() >= sweep_at:
                sweep_at = clock() + (EVERY_S if await self._forget_old() else AGAIN_S)
            is_done = await self._erase_due()
            try:
                async with asyncio.timeout(max(0.0, sweep_at - clock()) if is_done else AGAIN_S):
                    await self._asked.wait()
            except TimeoutError:
                continue
            self._asked.clear()

    async def _erase_due(self) -> bool:
        """Whether all of it is done."""
        is_done = True
        try:
            for tombstone in await self.eraser().due():
                try:
                    await self._erase(tombstone)
                except _FAULTS as error:
                    _log.error("not_erased", erasure=tombstone.id, error=str(error), again_s=AGAIN_S)
                    is_done = False
        except _FAULTS as error:
            _log.error("erasures_unreadable", error=str(error), again_s=AGAIN_S)
            is_done = False
        return is_done

    async def _erase(self, tombstone: Tombstone) -> None:
        gateway, eraser = self._gateway, self.eraser()
        await self._farewell(tombstone)
        person = await eraser.whom(tombstone)
        keys = {f"{eraser.kinds[channel]}:{account}" for channel, account in person.accounts if channel in eraser.kinds}
        keys |= {account.key for each in person.user_ids for account in await gateway.identities.accounts_of(each)}
        sessions = await gateway.store.database.read(partial(sessions_of, user_ids=person.user_ids))
        kept = [await gateway.store.sessions.session(each) for each in sessions]
        places = {each.conversation for each in kept if each is not None}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.presence.absence(keys, places))
            await gateway.linking.settle(person.user_ids)
            if gateway.traces.memory is not None:
                await stack.enter_async_context(gateway.traces.memory.resting(person.user_ids))
            await gateway.memory.forget(person.user_ids)
            await gateway.history.drop(sessions)
            await eraser.erase(tombstone)
            gateway.entrance.people.changed()
            await gateway.linking.people.load()
        self._farewells.pop(tombstone.id, None)
        self._erased.set()
        self._erased = asyncio.Event()
        happened("people.changed")

    async def _farewell(self, tombstone: Tombstone) -> None:
        """Wait until the person has our last word, though not for long."""
        farewell_id = self._farewells.get(tombstone.id)
        if farewell_id is None:
            return
        try:
            async with asyncio.timeout(FAREWELL_S):
                while not await self._has_ended(farewell_id):
                    self._sent.clear()
                    if not await self._has_ended(farewell_id):
                        await self._sent.wait()
        except TimeoutError:
            _log.warning("last_word_not_sent", erasure=tombstone.id, waited_s=FAREWELL_S)

    async def _has_ended(self, reply_id: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            sql = "SELECT 1 FROM outbox WHERE id = ? AND ended_at IS NOT NULL"
            return connection.execute(sql, (reply_id,)).fetchone() is not None

        return await self._gateway.store.database.read(work)

    async def _forget_old(self) -> bool:
        gateway = self._gateway
        try:
            await Retention(gateway.home, gateway.store, gateway.config.retention).run()
        except _FAULTS as error:
            _log.error("retention_failed", error=str(error), again_s=AGAIN_S)
            return False
        return True

    def eraser(self) -> Eraser:
        """What erases from this gateway's data directory."""
        gateway = self._gateway
        return Eraser(
            home=gateway.home,
            store=gateway.store,
            identities=gateway.identities,
            kinds=self._kinds(),
            brain=gateway.brain,
        )

    def _kinds(self) -> Mapping[str, str]:
        """As they stand in the identity map; the kind of a third party's channel that is not running is not known."""
        running = {adapter.name: adapter.kind for adapter in self._gateway.adapters}
        configured = self._gateway.config.channels.items()
        return {
            **{name: channel.kind for name, channel in configured if "." not in channel.kind},
            **running,
            PROGRAMS: PROGRAMS,
        }
