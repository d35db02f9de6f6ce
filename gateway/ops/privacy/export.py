"""Everything about one person in one zip file that people can read, with the same as JSON for programs.

It holds no words of others: of a group, only the person's own messages and the answers to them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from gateway import __version__
from gateway.domain.sessions import Session, SessionMessage
from gateway.errors import FileError
from gateway.files.atomic import sync_directory
from gateway.ops.privacy.memory import PersonalMemory
from gateway.ops.privacy.people import accounts_of, ids_of
from gateway.people.identity.file import Account
from gateway.people.identity.identities import Identities
from gateway.sandbox.workspace import Workspace, Workspaces
from gateway.store import personal
from gateway.store.clock import wall_ms
from gateway.store.gathering import own_sessions, sessions_of
from gateway.store.stores import Stores
from gateway.traces.erasure import traces_of
from gateway.traces.trace import Trace
from gateway.traces.trace_store import existing_traces

_README = """\
# Everything that is kept about you

Made on {now:%Y-%m-%d %H:%M} UTC by Ethos Gateway {version}, for the user `{user_id}`.

| here | is |
|---|---|
| `accounts.json` | the accounts by which you are known, how they were let in, and what links them |
| `memory/` | what the agent remembers of you: Markdown files as they are, `history.json` says how each line came in, \
`proposals.json` what waited for a yes |
| `files/` | the files that the agent has for you |
| `sessions/` | your conversations, each as Markdown and as JSON; in groups only your own messages and the answers |
| `messages.json` | every message that came from you, commands too, and what was sent back |
| `notices.json` | what you were told besides: that you were let in, or linked |
| `usage.json` | the calls of models on your behalf |
| `tools.json` | the calls of tools on your behalf, with what they were given |
| `approvals.json`, `grants.json` | calls that waited for a yes, and what spares you the question |
| `questions.json` | what servers of tools ask you, and you have not answered yet |
| `schedules.json` | what is done for you at a time, and what came of it |
| `settings.json` | what you have chosen, such as when you hear answers |
| `sign-in.json` | that you can sign in to the web pages, and the browsers in which you are |
| `traces.json`, `traces.md` | single facts that the agent keeps, if it keeps such; \
`traces-waiting.json` says of which turns they are still to be taken |

{left_out}Times are in UTC. `/forget-me` erases all of it here.
"""
_HEADINGS = {"user": "You", "assistant": "Agent", "tool_call": "Tool called", "tool_result": "Tool answered"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes exports from one data directory; `kinds` are those of the channels, by name."""

    home: Path
    store: Stores
    identities: Identities
    memory: PersonalMemory
    workspaces: Workspaces
    kinds: Mapping[str, str]

    async def write(self, user_id: str, path: Path) -> int:
        """Write the file under its name once it is whole; its size in bytes.

        Raises:
            FileError: the name is taken, or there is no room.
            MemoryUnavailable: the memory lies elsewhere, and cannot be asked now.
        """
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            file = await asyncio.to_thread(_begin, path, unfinished)
            with file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                    await self._fill(archive, user_id)
                await asyncio.to_thread(_finish, file, path, unfinished)
                return file.tell()
        except OSError as error:
            raise FileError(f"{path} could not be written: {error.strerror}") from error
        finally:
            unfinished.unlink(missing_ok=True)

    async def _fill(self, archive: zipfile.ZipFile, user_id: str) -> None:
        read = self.store.engine.read
        ids = sorted(await read(partial(ids_of, user_id=user_id)))
        known = [account for each in ids for account in await self.identities.accounts_of(each)]
        keys = {account.key for account in known}
        accounts = await read(partial(accounts_of, keys=keys, kinds=self.kinds, until_ms=wall_ms()))
        sessions = await read(partial(sessions_of, user_ids=ids))
        left_out = self.memory.left_out_of_export
        readme = _README.format(
            now=datetime.now(UTC),
            version=__version__,
            user_id=user_id,
            left_out="" if left_out is None else f"{left_out}\n\n",
        )
        await _add(archive, "README.md", readme)
        links = await read(partial(personal.links, user_ids=ids))
        await _add(
            archive,
            "accounts.json",
            {
                "users": ids,
                "accounts": [_account(each) for each in known],
                "links": links,
                "access": await read(partial(personal.access, keys=sorted(keys))),
            },
        )
        await _add(archive, "messages.json", await read(partial(personal.messages, accounts=accounts)))
        await _add(archive, "notices.json", await read(partial(personal.notices, accounts=accounts)))
        await _add(archive, "usage.json", await read(partial(personal.usage, user_ids=ids)))
        await _add(archive, "tools.json", await read(partial(personal.tool_calls, user_ids=ids)))
        await _add(archive, "approvals.json", await read(partial(personal.approvals, user_ids=ids)))
        await _add(archive, "questions.json", await read(partial(personal.questions, user_ids=ids)))
        await _add(archive, "grants.json", await read(partial(personal.grants, user_ids=ids)))
        await _add(archive, "schedules.json", await read(partial(personal.schedules, user_ids=ids)))
        await _add(archive, "settings.json", await read(partial(personal.settings, user_ids=ids)))
        await _add(archive, "sign-in.json", await read(partial(personal.signing_in, user_ids=ids)))
        await _add(archive, "memory/history.json", await read(partial(personal.memory_history, user_ids=ids)))
        await _add(archive, "memory/proposals.json", await read(partial(personal.proposals, user_ids=ids)))
        for name, data in (await self.memory.export(ids)).items():
            place = name if len(ids) > 1 else name.removeprefix(f"{ids[0]}/")  # apart only where accounts were linked
            await asyncio.to_thread(archive.writestr, f"memory/{_inside(place)}", data)
        for each in ids:
            place = "files/" if len(ids) == 1 else f"files/{each}/"
            await asyncio.to_thread(_add_files, archive, place, self.workspaces.of_person(each))
        for session_id in sessions:
            await self._add_session(archive, session_id, ids)
        await self._add_traces(archive, ids, await read(partial(own_sessions, user_ids=ids)))

    async def _add_session(self, archive: zipfile.ZipFile, session_id: str, ids: Collection[str]) -> None:
        session = await self.store.sessions.session(session_id)
        said = await self.store.sessions.messages(session_id)
        messages = [each for each in said if each.user_id in ids]
        if session is None or not (messages or session.user_id in ids):
            return
        is_shared = len(messages) < len(said)
        name = f"sessions/{session.created_at:%Y-%m-%d}-{session.id}"
        await _add(archive, f"{name}.md", "\n".join(_as_markdown(session, messages, is_shared=is_shared)))
        about = {**asdict(session), **({"title": "", "summary": ""} if is_shared else {})}
        del about["user_id"], about["key"]
        await _add(archive, f"{name}.json", {**about, "messages": [asdict(each) for each in messages]})

    async def _add_traces(self, archive: zipfile.ZipFile, ids: Sequence[str], sessions: Sequence[str]) -> None:
        async with existing_traces(self.home, self.store.engine) as trace_store:
            if trace_store is None:
                return
            traces = await trace_store.database.read(partial(traces_of, ids={*ids, *sessions}))
        waiting = await self.store.engine.read(partial(personal.waiting_facts, user_ids=ids))
        await _add(archive, "traces-waiting.json", waiting)
        plain = [{name: value for name, value in asdict(each).items() if name != "embedding"} for each in traces]
        await _add(archive, "traces.json", plain)
        await _add(archive, "traces.md", "\n".join(map(_line, traces)) + "\n")


def _add_files(archive: zipfile.ZipFile, place: str, workspace: Workspace) -> None:
    for name, file in workspace.opened():
        with file, archive.open(place + _inside(name), "w", force_zip64=True) as entry:
            shutil.copyfileobj(file, entry)


def _inside(name: str) -> str:
    """The name without what leads out of a directory where the file is unpacked: it comes from a server."""
    return "/".join(part for part in re.split(r"[/\\]", name) if part.strip(". "))


def _begin(path: Path, unfinished: Path) -> BinaryIO:
    if path.exists():
        raise FileError(f"{path} is there already; name another file, or remove it")
    unfinished.unlink(missing_ok=True)
    return os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _finish(file: BinaryIO, path: Path, unfinished: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def _account(account: Account) -> Mapping[str, Any]:
    return {
        "account": account.key,
        "user": account.user_id,
        "name": account.label,
        "first_seen_at": account.first_seen_at,
        "via": account.via,
    }


def _as_markdown(session: Session, messages: Sequence[SessionMessage], *, is_shared: bool) -> Iterator[str]:
    yield f"# {'A conversation of several' if is_shared else session.title or 'A conversation'}"
    yield f"\n{session.conversation.channel}, since {session.created_at:%Y-%m-%d %H:%M}, session `{session.id}`"
    if session.summary and not is_shared:
        yield f"\n## Summary of what is older\n\n{session.summary}"
    for message in messages:
        again = ", answered again later" if message.is_superseded else ""
        tool = f" `{message.tool_name}`" if message.tool_name else ""
        yield f"\n## {_HEADINGS[message.role]}{tool}, {message.created_at:%Y-%m-%d %H:%M:%S}{again}\n\n{message.text}"
    yield ""


def _line(trace: Trace) -> str:
    state = " (deleted)" if trace.deleted_at is not None else ""
    return f"- {trace.created_at:%Y-%m-%d} {trace.type}{state}: {' '.join(trace.content.split())}"


async def _add(archive: zipfile.ZipFile, name: str, content: object) -> None:
    await asyncio.to_thread(archive.writestr, name, content if isinstance(content, str) else _encoded(content))


def _encoded(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
