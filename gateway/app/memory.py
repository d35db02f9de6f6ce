"""Makes the memory that the configuration names; a part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.config import Config, ProviderConfig
from gateway.config.memory_kinds import load_memory_kind
from gateway.errors import ConfigError
from gateway.memory.kinds import OwnServices
from gateway.memory.sync import CommittedMemory, MemorySync
from gateway.protocols import ErasableMemory, MemoryProvider, MemoryServices
from gateway.runtime.logs import hiding, secrets_in
from gateway.store.stores import Stores

# A write of these may wait for another process that writes the same file.
_WITH_FILES = ("markdown", "webdav")


def make_memory(
    home: Path, config: Config, store: Stores, traces: Callable[[], MemoryProvider] | None
) -> MemoryProvider:
    """The memory; nothing is opened or asked yet. `traces` makes it over the trace store, where that is open.

    Raises:
        ConfigError: it cannot be made, or it cannot erase a person and nothing says that the operator does.
    """
    chosen = config.memory.provider
    is_own = "." not in chosen.kind
    directory = home / "memory" / chosen.kind
    services = (
        OwnServices(
            state_dir=directory,
            max_document_bytes=config.memory.max_file_bytes,
            home=home,
            journal=store.journal,
            documents=store.documents,
            lock_timeout_s=config.memory.lock_timeout_s,
            traces=traces,
        )
        if is_own
        else MemoryServices(state_dir=directory, max_document_bytes=config.memory.max_file_bytes)
    )
    kind = load_memory_kind(chosen.kind)
    if is_own:
        return kind.provider(chosen.settings, services)
    try:
        memory = kind.provider(chosen.settings, services)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        hide = hiding(secrets_in(chosen.settings))  # a library may quote the address
        raise ConfigError([f"memory.provider: {chosen.kind} cannot be made ({hide(reason)})"]) from error
    check_memory(memory, chosen)
    return memory


def memory_sync(memory: MemoryProvider, kind: str, config: Config, store: CommittedMemory) -> MemorySync:
    """What turns read and write the memory through."""
    settings = config.memory
    return MemorySync(
        memory,
        store,
        kind=kind,
        timeout_s=settings.timeout_s,
        write_timeout_s=settings.timeout_s + (settings.lock_timeout_s if kind in _WITH_FILES else 0),
    )


def check_memory(memory: MemoryProvider, chosen: ProviderConfig) -> None:
    """Refuse what is no memory, and one that would keep a person who asked to be forgotten.

    Raises:
        ConfigError: it cannot be used.
    """
    name = type(memory).__name__
    if not all(callable(getattr(memory, method, None)) for method in ("prefetch", "sync")):
        raise ConfigError([f"memory.provider: {name} is no memory; expected `prefetch` and `sync`"])
    if not isinstance(memory, ErasableMemory) and chosen.erasure is None:
        text = f"memory.provider: {name} cannot erase a person; expected one that has `erase`, or `erasure: by_hand`"
        raise ConfigError([f"{text} beside its `kind` if you do that yourself"])
