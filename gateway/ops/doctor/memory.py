"""The check of where the memory is kept: its server is asked, over the network if it is elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.config import Config
from gateway.config.file import CONFIG_NAME
from gateway.config.memory_kinds import DEFAULT_KIND, TRACES_KIND
from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME
from gateway.memory.checking import problems
from gateway.ops.doctor.finding import Finding, Ground, named
from gateway.protocols import ChecksMemory, MemoryProvider, OpensMemory
from gateway.store.stores import open_store


async def memory(ground: Ground) -> AsyncIterator[Finding]:
    """What is wrong with where the memory is kept; the files of the data directory have checks of their own."""
    config = ground.config
    if config is None or config.memory.provider.kind in (DEFAULT_KIND, TRACES_KIND):
        return
    kind = config.memory.provider.kind
    advice = f"`memory.provider` in {CONFIG_NAME} says where it is. Then `ethos doctor` again."
    try:
        async with AsyncExitStack() as stack:
            made = await _made(stack, ground, config)
            found = await problems(made)
    except (EthosError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 (a third party's memory may raise anything when it is opened)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield Finding("memory", "problem", f"The memory of the kind {kind} cannot be opened ({reason}).", advice)
        return
    for line in found:
        yield Finding(named("memory", line), "problem", f"The memory of the kind {kind}: {line}", advice)
    if not found:
        said = ", and nothing is wrong there" if isinstance(made, ChecksMemory) else "; it cannot say how it is"
        yield Finding("memory", "note", f"The memory is of the kind {kind}{said}.")


async def _made(stack: AsyncExitStack, ground: Ground, config: Config) -> MemoryProvider:
    """The memory over an empty data directory of its own, so that nothing of the real one is touched."""
    home = Path(stack.enter_context(TemporaryDirectory(prefix="ethos-doctor-")))
    store = open_store(home / DATABASE_NAME)
    stack.push_async_callback(store.close)
    made = ground.parts.made_memory(home, config, store)
    if isinstance(made, OpensMemory):
        stack.push_async_callback(made.close)
        await made.open()
    return made
