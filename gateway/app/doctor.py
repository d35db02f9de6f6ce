"""What the doctor may use of the gateway as a whole: parts that are put together to be tried, and what can repair."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.app.memory import make_memory
from gateway.app.skills import has_places
from gateway.app.speech import listening_of, speaking_of
from gateway.app.tools import made_tools
from gateway.app.web import search_of
from gateway.app.workspaces import look_at_workspaces
from gateway.config import Config
from gateway.errors import FileError
from gateway.files.last_backup import last_backup, note_backup
from gateway.files.running_gateway import GatewayProcess
from gateway.ops.backup.taking import take_backup
from gateway.ops.doctor.finding import Ground, Hands, Parts
from gateway.ops.privacy.home import has_memory_files
from gateway.pipeline.health import as_json
from gateway.protocols import MemoryProvider
from gateway.sdk.models.deliveries import Queue
from gateway.services.caller import operator
from gateway.store.stores import Stores

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.services.deliveries import DeliveryService

DOCTOR = operator("doctor")


def _made_memory(home: Path, config: Config, store: Stores) -> MemoryProvider:
    return make_memory(home, config, store, None)


PARTS = Parts(
    made_tools=made_tools,
    made_memory=_made_memory,
    search_of=search_of,
    listening_of=listening_of,
    speaking_of=speaking_of,
    has_skills=has_places,
    look_at_workspaces=look_at_workspaces,
)


async def ground_of(gateway: Composition, deliveries: DeliveryService, *, asks_models: bool = False) -> Ground:
    """This gateway, as it looks at itself; put together for a command it runs nothing."""
    process, health = None, {}
    if gateway.is_serving.is_set():
        now = await gateway.checkup.health()
        process = GatewayProcess(pid=os.getpid(), url=gateway.browser_url, started_at=now.started_at)
        health = as_json(now)
    return Ground(
        home=gateway.home,
        config=gateway.config,
        process=process,
        parts=PARTS,
        opened_store=partial(_its_store, gateway),
        ask_health=lambda: health,
        hands=_hands_of(gateway, deliveries),
        asks_models=asks_models,
    )


@asynccontextmanager
async def _its_store(gateway: Composition) -> AsyncGenerator[Stores]:
    yield gateway.store


def _hands_of(gateway: Composition, deliveries: DeliveryService) -> Hands:
    return Hands(
        retry_dead=partial(_retry_dead, deliveries),
        bring_in_memory=partial(_bring_in_memory, gateway),
        build_index=partial(_build_index, gateway),
        back_up=partial(_back_up, gateway),
        connect=partial(_connect, gateway),
        reload=partial(_reload, gateway),
        forget_old=partial(_forget_old, gateway),
        withheld=partial(_withheld, gateway),
        is_changed=lambda: gateway.is_serving.is_set() and bool(gateway.reloading.changed()),
    )


async def _retry_dead(deliveries: DeliveryService, queue: Queue, channel: str) -> str:
    count = await deliveries.retry_all(DOCTOR, queue, channel=channel)
    return f"{_counted(count, 'message')} will be tried again, now."


async def _bring_in_memory(gateway: Composition) -> str:
    await gateway.memory.replay()
    if late := gateway.memory.late:
        why = "; ".join(gateway.memory.problems) or "the log says why"
        raise FileError(f"the updates of {_counted(late, 'turn')} still wait: {why}")
    return "All of them are in the memory now."


async def _build_index(gateway: Composition) -> str:
    await gateway.store.index.build()
    return "The index is made again."


async def _back_up(gateway: Composition) -> str:
    """Where the last one was made."""
    home, last = gateway.home, await asyncio.to_thread(last_backup, gateway.home)
    if last is None:
        raise FileError("no backup was made of this gateway yet, so it is not known where to; use `ethos backup FILE`")
    place = Path(last.file).parent
    if not await asyncio.to_thread(place.is_dir):
        raise FileError(f"{place}, where the last one was made, is not there now; mount it, or use `ethos backup FILE`")
    copy, url = None, gateway.config.store.url
    if url is not None:
        from gateway.ops.moving import copy_of_server  # noqa: PLC0415 (needs psycopg)

        copy = copy_of_server(url.get_secret_value(), lambda *_: None, has_memory=has_memory_files(home))
    taken = await take_backup(home, place, copy=copy)
    await asyncio.to_thread(note_backup, home, taken.path)
    return f"Saved as {taken.path}, and read back."


async def _connect(gateway: Composition, channel: str) -> str:
    """With the secrets of now; a reload connects it where these are others."""
    before = gateway.channels.find(channel)
    await _reload(gateway)
    if gateway.channels.find(channel) is before:
        await gateway.reloading.connect(channel)
    return f"{channel} connects now; the page Channels shows how it goes."


async def _reload(gateway: Composition) -> str:
    done = await gateway.reloading.reload()
    gateway.cluster.news.tell("reload")
    if done.problems:
        raise FileError("Nothing was taken over: " + "; ".join(done.problems))
    waiting = f" These wait for a restart: {', '.join(done.at_restart)}." if done.at_restart else ""
    return f"The configuration is read again.{waiting}"


async def _forget_old(gateway: Composition) -> str:
    gone = await gateway.privacy.forget_old()
    told = ", ".join(f"{one.amount:,} {one.what}" for one in gone if one.amount)
    return f"Deleted: {told}." if told else "Nothing is older than `retention` in config.yaml allows."


def _withheld(gateway: Composition) -> Mapping[str, int]:
    counts = {view.name: sum(not entry.is_accepted for entry in view.tools) for view in gateway.mcp.views()}
    return {name: count for name, count in counts.items() if count}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
