"""Traces that come in as files and go out as files; see `docs/import-and-export.md`."""

from __future__ import annotations

import asyncio
import shutil
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.errors import TraceError
from gateway.runtime.observe import happened
from gateway.sdk.models import traces as wire
from gateway.services.caller import Caller, Malformed, Refused, TracesOff
from gateway.services.trace_scopes import TraceScopes
from gateway.services.trace_stores import TraceStores
from gateway.services.traces import CHANGED
from gateway.services.uploads import Incoming, Transfer, Transfers
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces


@dataclass(frozen=True, slots=True)
class Kind:
    """How a format leaves: notes are many files, so they leave in a zip."""

    ending: str
    media_type: str
    is_packed: bool = False


KINDS: Mapping[wire.ExportFormat, Kind] = {
    "json": Kind("json", "application/json"),
    "sqlite": Kind("sqlite", "application/vnd.sqlite3"),
    "markdown": Kind("zip", "application/zip", is_packed=True),
    "obsidian": Kind("zip", "application/zip", is_packed=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A file that is ready to be taken."""

    path: Path
    name: str
    media_type: str
    traces: int


class TraceTransferService:
    """Every method raises `Refused` where the trace memory is off, or too much is at work."""

    def __init__(self, stores: TraceStores, scopes: TraceScopes, transfers: Transfers) -> None:
        self._stores = stores
        self._scopes = scopes
        self.transfers = transfers

    async def receive(self, caller: Caller, name: str) -> Incoming:
        """A place for the bytes of an upload; `name` is what its sender calls the file.

        The operator at the machine has the room of the disk, all others what the configuration allows.
        """
        if self._stores.own is None and not caller.is_at_machine:
            raise TracesOff
        return await self.transfers.incoming(name, is_bounded=not caller.is_at_machine)

    async def discard(self, upload: Transfer) -> None:
        """Remove the file. Idempotent."""
        await asyncio.to_thread(upload.drop)

    async def import_file(
        self,
        caller: Caller,
        upload: Transfer,
        *,
        form: wire.ImportFormat = "auto",
        user: str | None = None,
        is_dry_run: bool,
        dedup: bool = True,
    ) -> wire.ImportReport:
        """Import a file that was received; what is there already is skipped, so it may be done again.

        Args:
            user: all becomes that person's; None: whose the file says that it is, or the only user's.
            is_dry_run: say what would happen, and change nothing.
            dedup: False: what is there already comes in once more.

        Raises:
            Malformed: it is nothing that can be imported.
            NotNamed: no user has that name.
            NotAllowed: they are not for the caller.
            StoreUnavailable: the disk is full or broken; what was put in before is in.
        """
        new_in = upload.path.with_name("dry-run") if is_dry_run else self._stores.home
        async with self._stores.opened(caller, new_in=new_in) as trace_store:
            made_user = None if is_dry_run else await self._scopes.first_person(caller, user)
            bounds = await self._scopes.bounds(caller, user, is_dry_run=is_dry_run)
            with self.transfers.at_work():
                try:
                    result = await import_traces(
                        trace_store,
                        upload.path,
                        bounds=bounds,
                        form=form,
                        dedup=dedup,
                        is_dry_run=is_dry_run,
                        scratch=upload.path.parent,
                    )
                except TraceError as error:
                    raise Malformed(str(error).replace(str(upload.path), upload.path.name)) from error
                except OSError as error:
                    raise Refused(f"{upload.path.name} cannot be read: {error.strerror}") from error
                finally:
                    if not is_dry_run:
                        happened(CHANGED)
        return wire.ImportReport(**asdict(result), format=result.form, is_dry_run=is_dry_run, made_user=made_user)

    @asynccontextmanager
    async def export_file(
        self,
        caller: Caller,
        form: wire.ExportFormat,
        *,
        user: str | None = None,
        with_embeddings: bool = False,
        with_conversations: bool = True,
    ) -> AsyncIterator[Export]:
        """A file with all traces of a person, or of everybody, as they are at this moment; gone with the block.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: they are not for the caller.
            StoreUnavailable: the disk is full or broken.
        """
        kind = KINDS[form]
        stem = "ethos-traces" + (f"-{form}" if kind.is_packed else "")
        async with self._stores.opened(caller) as trace_store:
            bounds = await self._scopes.bounds(caller, user)
            transfer = await self.transfers.outgoing(f"{stem}.{kind.ending}")
            try:
                with self.transfers.at_work():
                    target = transfer.path.with_name(stem) if kind.is_packed else transfer.path
                    try:
                        written = await export_traces(
                            trace_store,
                            target,
                            form=form,
                            bounds=bounds,
                            with_embeddings=with_embeddings,
                            with_conversations=with_conversations,
                        )
                        if kind.is_packed:
                            await asyncio.to_thread(_pack, target, transfer.path)
                    except OSError as error:
                        raise Refused(f"the export cannot be written: {error.strerror}") from error
                yield Export(path=transfer.path, name=transfer.path.name, media_type=kind.media_type, traces=written)
            finally:
                await asyncio.to_thread(transfer.drop)


def _pack(directory: Path, target: Path) -> None:
    """A zip of what is in the directory, which is gone afterwards."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6, strict_timestamps=False) as archive:
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(directory).as_posix())
    shutil.rmtree(directory)
