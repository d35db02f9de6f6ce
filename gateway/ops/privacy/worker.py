"""Privacy in a running gateway: exports and erasures that people ask for, and forgetting by age once a day."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from gateway.cluster.jobs import Jobs
from gateway.config import LiveConfig
from gateway.domain.channels import Channels
from gateway.domain.tombstones import Tombstone, Tombstones
from gateway.errors import FileError, MemoryUnavailable
from gateway.files.atomic import make_private_directory
from gateway.files.home import EXPORTS_NAME
from gateway.memory.sync import MemorySync
from gateway.messages import Attachment, ConversationRef
from gateway.ops.privacy.erasing import Eraser
from gateway.ops.privacy.export import Exporter
from gateway.ops.privacy.files import copies_in
from gateway.ops.privacy.memory import PersonalMemory
from gateway.ops.privacy.people import ids_of, is_known
from gateway.ops.privacy.retention import Retention
from gateway.ops.privacy.shared_exports import MEDIA_TYPE, SharedExports
from gateway.ops.privacy.sweeping import FAULTS, Sweeping
from gateway.people.access_records import AccessRecords
from gateway.people.identity.identities import Identities
from gateway.people.linking.chat import Linking
from gateway.people.operators import Operators
from gateway.pipeline.history import History
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.presence import Presence
from gateway.runtime.observe import happened
from gateway.runtime.rhythm import at_moment, next_moment_s
from gateway.sandbox.workspace import Workspaces
from gateway.sdk.models.system import Forgotten
from gateway.store.erasure import applied_erasures
from gateway.store.gathering import sessions_of
from gateway.store.stores import Stores
from gateway.traces.memory import TraceMemory
from gateway.traces.trace_store import TraceStore

FAREWELL_S = 30.0
"""How long an erasure waits for its last word to be sent; then it goes unsent."""
AGAIN_S = 60.0
EVERY_S = 86_400.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A person's data in one file.

    Attributes:
        attachment: None where the channel does not take such a file.
        place: where it lies in the data directory, or the command that gives it to an operator.
        path: where it lies on the machine, for the operator on a channel of their own; None for others.
    """

    attachment: Attachment | None
    place: str
    size_bytes: int
    path: Path | None = None


class PrivacyWorker:
    """One gateway's."""

    def __init__(
        self,
        *,
        home: Path,
        store: Stores,
        trace_store: TraceStore | None,
        identities: Identities,
        tombstones: Tombstones,
        people: AccessRecords,
        operators: Operators,
        linking: Linking,
        memory: MemorySync,
        personal_memory: PersonalMemory,
        trace_memory: TraceMemory | None,
        history: History,
        presence: Presence,
        config: LiveConfig,
        channels: Channels,
        outbox: Outbox,
        jobs: Jobs,
        workspaces: Workspaces,
        shared_exports: SharedExports | None = None,
    ) -> None:
        """Nothing is read yet; `home` is the data directory, `shared_exports` is for more workers than one."""
        self._jobs = jobs
        self._workspaces = workspaces
        self._home = home
        self._store = store
        self._trace_store = trace_store
        self._identities = identities
        self._tombstones = tombstones
        self._people = people
        self._operators = operators
        self._linking = linking
        self._memory = memory
        self._personal_memory = personal_memory
        self._trace_memory = trace_memory
        self._history = history
        self._config = config
        self._channels = channels
        self._outbox = outbox
        self.presence = presence
        self._shared_exports = shared_exports
        self._sweeping = Sweeping(self.eraser)
        self._farewells: dict[str, str] = {}  # by the erasure's id, the reply that is sent first
        self._asked = asyncio.Event()
        self._erased = asyncio.Event()
        self._is_running = False
        self.tell: Callable[[], None] = lambda: None
        """Told when an erasure was decided, and when one was done."""

    # ---- what people ask for ----------------------------------------------------------------------------------------

    async def deliverable(self, user_id: str, name: str, size_bytes: int, conversation: ConversationRef) -> Exported:
        """A person's export as it can be handed over in a conversation.

        Raises:
            StoreUnavailable: other workers have no way to it now.
        """
        path = self._home / name
        if self._shared_exports is not None:
            return await self._left_for_all(self._shared_exports, user_id, name, size_bytes, conversation)
        is_operator = not self._operators.accounts().isdisjoint(await self.accounts_of(user_id))
        adapter = self._channels.if_up(conversation.channel)
        most_bytes = 0 if adapter is None else adapter.capabilities.max_attachment_bytes
        attachment = Attachment(media_type="application/zip", filename=path.name, size_bytes=size_bytes, ref=str(path))
        return Exported(
            attachment=attachment if size_bytes <= most_bytes else None,
            place=name,
            size_bytes=size_bytes,
            path=path if is_operator and adapter and adapter.kind not in self._operators.kinds_of_others() else None,
        )

    async def _left_for_all(
        self, exports: SharedExports, user_id: str, name: str, size_bytes: int, conversation: ConversationRef
    ) -> Exported:
        """The same where another worker may have the channel, and no machine is the one where the file lies."""
        path, attachment = self._home / name, None
        capabilities = self._channels.capabilities(conversation.channel)
        if capabilities is not None and size_bytes <= capabilities.max_attachment_bytes:
            await exports.keep(name, path)
            attachment = Attachment(media_type=MEDIA_TYPE, filename=path.name, size_bytes=size_bytes, ref=name)
        else:
            await asyncio.to_thread(path.unlink)
        return Exported(attachment=attachment, place=f"ethos people export {user_id} FILE", size_bytes=size_bytes)

    async def write_export(self, user_id: str) -> tuple[str, int]:
        """Write everything about a person into a new file: its path in the data directory, and its size in bytes.

        Raises:
            FileError: there is no room for it.
            MemoryUnavailable: the memory lies elsewhere, and cannot be asked now.
        """
        exporter = Exporter(
            home=self._home,
            store=self._store,
            identities=self._identities,
            memory=self._personal_memory,
            workspaces=self._workspaces,
            kinds=self._channels.kinds,
        )
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        name = f"{EXPORTS_NAME}/{user_id}/ethos-export-{stamp}.zip"
        path = self._home / name
        await asyncio.to_thread(make_private_directory, path.parent)
        return name, await exporter.write(user_id, path)

    async def schedule_erasure(self, user_id: str, farewell_id: str | None = None) -> str:
        """Decide, durably, that a person is erased; the erasure's id, which the database has when it is done.

        Args:
            farewell_id: a reply that is sent first, if that does not take long.

        Raises:
            FileError: it could not be written down; nothing will be erased.
        """
        tombstone = await self.eraser().schedule(user_id)
        if farewell_id is not None:
            self._farewells[tombstone.id] = farewell_id
        self.look()
        self.tell()
        return tombstone.id

    def look(self) -> None:
        """Look whether somebody is to be erased, and whether an erasure is done."""
        self._asked.set()
        self._have_erased()

    def _have_erased(self) -> None:
        erased, self._erased = self._erased, asyncio.Event()
        erased.set()

    async def accounts_of(self, user_id: str) -> Sequence[str]:
        """The accounts of a person, under all ids that the person has had."""
        ids = await self._store.engine.read(partial(ids_of, user_id=user_id))
        return [one.key for each in sorted(ids) for one in await self._identities.accounts_of(each)]

    @property
    def left_by_erasure(self) -> str | None:
        """What stays when a person is erased, and where; None where nothing does."""
        return self._personal_memory.left_by_erasure

    @property
    def left_out_of_export(self) -> str | None:
        """What an export lacks; None where it lacks nothing."""
        return self._personal_memory.left_out_of_export

    async def copies(self) -> Sequence[str]:
        """The names of the copies of the data of all people, which an erasure deletes."""
        return [path.name for path in await asyncio.to_thread(copies_in, self._home)]

    async def leaving(self, accounts: Collection[str]) -> Collection[str]:
        """Those of some accounts whose erasure is decided and not done."""
        return {account for each in await self.eraser().due() for account in each.names(accounts)}

    async def erased(self, user_ids: Collection[str]) -> Collection[str]:
        """Those of some user ids that were erased, or are to be."""
        tombstones = await self._tombstones.all()
        return await asyncio.to_thread(lambda: {name for each in tombstones for name in each.names(user_ids)})

    async def is_decided(self, erasure_id: str) -> bool:
        """Whether there is such an erasure, done or not."""
        return any(erasure_id == one.id for one in await self._tombstones.all())

    async def erasure_of(self, names: Collection[str]) -> str | None:
        """The id of the newest erasure of a person with all these user ids and accounts; None where there is none."""
        tombstones = await self._tombstones.all()
        return next((one.id for one in reversed(tombstones) if one.names(names) == set(names)), None)

    async def is_known(self, account: str) -> bool:
        """Whether anything is kept of an account, `kind:id`, though it may be no user's."""
        return await self._store.engine.read(partial(is_known, key=account, kinds=self._channels.kinds))

    async def is_erased(self, erasure_id: str, *, wait_s: float) -> bool:
        """Whether an erasure is done; waits so long at the most until `run` has done it, or does it where none runs.

        Raises:
            EthosError: it could not be done here; the next start does what is left of it.
        """
        if not self._is_running:
            await self._finish(erasure_id)
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    ended = self._erased
                    if erasure_id in await self._store.engine.read(applied_erasures):
                        return True
                    await ended.wait()
        except TimeoutError:
            return False

    async def _finish(self, erasure_id: str) -> None:
        for tombstone in await self.eraser().due():
            if tombstone.id == erasure_id:
                try:
                    await self._erase(tombstone)
                except (MemoryUnavailable, OSError, sqlite3.Error) as error:
                    raise FileError(f"not all is erased yet, the next start does the rest: {error}") from error

    # ---- the work ---------------------------------------------------------------------------------------------------

    async def clean(self) -> None:
        """At the start: finish interrupted erasures, and repeat those that an old backup has undone.

        Where a memory that lies elsewhere is away, `run` does it when it is back; till then the person's updates wait.
        With other workers on the database `run` does it, too.

        Raises:
            EthosError, OSError: it could not be done; the gateway must not serve them.
        """
        eraser = self.eraser()
        for tombstone in await eraser.due():
            if not self._store.is_shared:
                try:
                    await eraser.erase(tombstone)
                    continue
                except MemoryUnavailable as error:
                    _log.error("not_erased", erasure=tombstone.id, error=str(error), again_s=AGAIN_S)
            await self._memory.forget((await eraser.whom(tombstone)).user_ids)

    async def run(self) -> None:
        """Erase on request, and forget by age at the start and once a day, until cancelled.

        Of many workers one at a time does what is in the database, and each what lies on its machine.
        """
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forget_daily(files=True))
                tasks.create_task(self._jobs.keep("retention", partial(self._forget_daily, files=False)))
                tasks.create_task(self._erase_on_request())
                tasks.create_task(self._sweeping.run())
        finally:
            self._is_running = False

    async def _forget_daily(self, *, files: bool) -> None:
        while True:
            again_s = EVERY_S if await self._forget_old(files=files) else AGAIN_S
            await asyncio.sleep(again_s)

    async def _erase_on_request(self) -> None:
        """Also what a worker that died has left: where there are others, it is looked for now and then."""
        look_s = AGAIN_S if self._store.is_shared else EVERY_S
        while True:
            self._asked.clear()
            is_done = await self._erase_due()
            with at_moment(next_moment_s(look_s if is_done else AGAIN_S), self._asked.set):
                await self._asked.wait()

    async def _erase_due(self) -> bool:
        """Whether all of it is done, by whichever worker."""
        try:
            if not await self.eraser().due():
                return True
            await self._jobs.keep("erasure", self._erase_all)
            self._have_erased()
            return not await self.eraser().due()
        except FAULTS as error:
            _log.error("erasures_unreadable", error=str(error), again_s=AGAIN_S)
            return False

    async def _erase_all(self) -> None:
        for tombstone in await self.eraser().due():
            try:
                await self._erase(tombstone)
            except FAULTS as error:
                _log.error("not_erased", erasure=tombstone.id, error=str(error), again_s=AGAIN_S)

    async def _erase(self, tombstone: Tombstone) -> None:
        eraser = self.eraser()
        await self._farewell(tombstone)
        person = await eraser.whom(tombstone)
        keys = {f"{eraser.kinds[channel]}:{account}" for channel, account in person.accounts if channel in eraser.kinds}
        keys |= {account.key for each in person.user_ids for account in await self._identities.accounts_of(each)}
        sessions = await self._store.engine.read(partial(sessions_of, user_ids=person.user_ids))
        kept = [await self._store.sessions.session(each) for each in sessions]
        places = {each.conversation for each in kept if each is not None}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.presence.absence(keys, places))
            await self._linking.settle(person.user_ids)
            if self._trace_memory is not None:
                await stack.enter_async_context(self._trace_memory.resting(person.user_ids))
            await self._memory.forget(person.user_ids)
            await self._history.drop(sessions)
            await eraser.erase(tombstone)
            self._people.changed()
            await self._linking.people.load()
        if self._store.is_shared:
            self._sweeping.later(person.user_ids, sessions)
        self._farewells.pop(tombstone.id, None)
        self._have_erased()
        self.tell()
        happened("people.changed")

    async def _farewell(self, tombstone: Tombstone) -> None:
        """Wait until the person has our last word, though not for long."""
        farewell_id = self._farewells.get(tombstone.id)
        if farewell_id is None:
            return
        try:
            async with asyncio.timeout(FAREWELL_S):
                while True:
                    next_send = self._outbox.next_send
                    if await self._has_ended(farewell_id):
                        return
                    await next_send.wait()
        except TimeoutError:
            _log.warning("last_word_not_sent", erasure=tombstone.id, waited_s=FAREWELL_S)

    async def _has_ended(self, reply_id: str) -> bool:
        sql = "SELECT 1 FROM outbox WHERE id = ? AND ended_at IS NOT NULL"
        return await self._store.engine.row(sql, (reply_id,)) is not None

    async def forget_old(self, *, is_dry: bool = False) -> Sequence[Forgotten]:
        """Forget what is older than the configuration allows, or only count it; raises as `Retention.run`."""
        return await self._retention().run(is_dry=is_dry)

    def _retention(self) -> Retention:
        return Retention(self._home, self._store, self._config.current.retention)

    async def _forget_old(self, *, files: bool) -> bool:
        try:
            await self._retention().run(files=files)
            if self._store.is_shared and not files:
                await self._sweeping.returned()
        except FAULTS as error:
            _log.error("retention_failed", error=str(error), again_s=AGAIN_S)
            return False
        return True

    def eraser(self) -> Eraser:
        """What erases from this gateway's data directory."""
        return Eraser(
            home=self._home,
            store=self._store,
            identities=self._identities,
            tombstones=self._tombstones,
            memory=self._personal_memory,
            kinds=self._channels.kinds,
            workspaces=None if self._workspaces.place == self._home else self._workspaces,
            trace_store=self._trace_store,
        )
