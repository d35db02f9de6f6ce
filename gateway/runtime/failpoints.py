"""Failpoints: named places at which the process ends as by `kill -9`, so that it can be shown that nothing is lost.

They are off, and then a call costs no more than that of an empty function. What switches them on is the environment
variable `ETHOS_FAILPOINTS`, and a test of faults sets it:

- `kill outbox.claimed 3` ends the process when it comes to that point for the third time;
- `note /path/of/a/file` writes down the name of every point when it is first come to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

VARIABLE = "ETHOS_FAILPOINTS"

# On the way of a message, in this order.
POINTS: Mapping[str, str] = {
    "start.held": "the data directory is ours, nothing is opened",
    "schema.committing": "the tables are made, and not committed",
    "start.replayed": "the memory has all that the journal knows",
    "start.recovered": "queues are taken up, no channel is connected",
    "inbox.accepting": "a message came in, nothing of it is written",
    "inbox.committed": "the message is on disk, the platform was not told",
    "inbox.acknowledging": "the adapter is about to tell the platform",
    "notes.kept": "a note of an adapter is on disk",
    "database.committing": "all that a transaction changes is written, and not committed",
    "database.committed": "a transaction is committed, no one was told",
    "turn.claimed": "a message is claimed, its turn has not begun",
    "turn.steps_saved": "the steps of an unfinished turn are kept",
    "turn.released": "a claim was given back",
    "turn.committing": "the turn has its answer, nothing of it is on disk",
    "turn.committed": "the turn is on disk, nothing of it was sent or applied to the memory",
    "identity.copied": "the copy of the identity map knows a new account, the map does not",
    "identity.renamed": "the new identity map is in place, its name not durable",
    "lock.held": "the lock of a file was taken",
    "lock.releasing": "the lock of a file is about to be let go",
    "lock.released": "the lock of a file was let go, no one was told",
    "file.written": "a new file is written, and not synced",
    "file.synced": "a new file is synced, and not in its place",
    "file.renamed": "a file is in its place, its name not durable",
    "directory.synced": "the names of a directory are durable",
    "memory.begun": "the journal knows what is asked of the memory",
    "memory.looked": "the memory file was read, under its lock",
    "memory.staged": "the next version lies beside the file",
    "memory.linked": "and its evidence",
    "memory.recorded": "the journal knows the text before and after",
    "memory.archived": "what the file is too long for is in the archive",
    "memory.compared": "the file is still the one that was read",
    "memory.exchanged": "the two versions have changed places",
    "memory.renamed": "the new version is in place, its name not durable",
    "memory.synced": "the new version is durable, the journal does not know",
    "memory.settling": "the memory has the updates of a turn, the turn does not know",
    "memory.settled": "the turn knows",
    "outbox.claimed": "a reply is marked as being sent, and not sent",
    "outbox.delivered": "the platform has the reply, and we have no receipt of it on disk",
    "outbox.recorded": "what became of the reply is on disk",
    "stop.draining": "no more messages are taken, what runs may end",
    "stop.drained": "what could end has ended, the channels are still open",
}

# Of tools that act; a gateway comes to them only if it has such a tool.
TOOL_POINTS: Mapping[str, str] = {
    "tool.begun": "the journal knows that a call is about to be made, and it is not made",
    "tool.made": "the call was made, nothing is known of what came of it",
    "tool.ended": "the journal knows what came of the call, the turn does not",
    "delegate.steps_saved": "a step of a sub-agent is kept, and its next one is not begun",
    "delegate.ended": "a sub-agent has its report, the turn does not",
    "approval.decided": "a yes is on disk, with the message that has the call made, and nobody was told",
}

# Of what is due at a time; a gateway comes to them only if it has a schedule.
SCHEDULE_POINTS: Mapping[str, str] = {
    "schedule.firing": "something is due, and nothing of it is on disk",
    "schedule.fired": "its time is moved and its message is on disk, nobody was woken",
    "schedule.telling": "a schedule was paused, and its person is not told",
    "schedule.told": "what the person is told is on disk, and nothing of it was sent",
}

# Of calls of hooks; a gateway comes to them only if it has a hook.
HOOK_POINTS: Mapping[str, str] = {
    "hook.accepting": "a service called and has proved itself, nothing of the call is on disk",
    "hook.committed": "the call is on disk, the service was not told",
}

# Of speech; a gateway comes to them only if it listens and speaks.
SPEECH_POINTS: Mapping[str, str] = {
    "speech.heard": "what a person has recorded is heard, and kept with the turn, which has not answered",
    "speech.saying": "a voice note is about to be made",
    "speech.made": "a voice note is made and kept with its row, and not sent",
}

# Of memories on servers; a gateway comes to them only if it has such a memory.
MEMORY_POINTS: Mapping[str, str] = {
    "memory.postgres.prepared": "the tables are there",
    "memory.postgres.read": "the document is locked and was read",
    "memory.postgres.writing": "the document was sent, its history was not",
    "memory.postgres.committing": "all was sent, and not committed",
    "memory.postgres.committed": "the server has all of it, no one was told",
    "memory.postgres.replacing": "a whole document was taken out, nothing is in its place",
    "memory.postgres.replaced": "another is in its place, and not committed",
    "memory.redis.read": "the document was read",
    "memory.redis.committed": "the server has all of it, no one was told",
    "memory.redis.replacing": "a whole document was read, and is to be exchanged",
    "memory.redis.replaced": "it was exchanged, no one was told",
    "memory.webdav.asked": "the server's file was read, nothing of it is here",
    "memory.webdav.merged": "what was edited there is here, the copy of it is not noted",
    "memory.webdav.taken": "and it is",
    "memory.webdav.folder": "a folder was made there",
    "memory.webdav.locked": "the server's file is locked",
    "memory.webdav.sending": "what goes to the server is noted, and nothing of it is sent",
    "memory.webdav.put": "the server has the file, the copy of it is not noted",
    "memory.webdav.noted": "and it is",
    "memory.webdav.lines_erased": "a person's lines are out of the file here, and not out of the server's",
    "memory.webdav.user_erased": "a person's own files are not on the server any more, and still here",
}

# Of many workers on one database; a gateway alone never comes to them.
WORKER_POINTS: Mapping[str, str] = {
    "lease.taken": "the database has this worker as the holder, nothing is begun",
    "lease.lost": "a lease is over, what it is of was told and has not stopped",
    "news.sending": "something is to be told to the others, and nothing is sent",
}

# Of an answer to a server, on its way to the worker in whose call it waits.
ANSWER_POINTS: Mapping[str, str] = {
    "answer.put": "the answer is sealed in the database, and the others were not told",
    "answer.taken": "the worker that has the call has the answer, and its server does not",
    "answer.used": "its server has used it, and the other worker does not know",
}

# Of `ethos store copy`.
COPY_POINTS: Mapping[str, str] = {
    "copy.begun": "the target knows that a copy into it has begun",
    "copy.batch": "a batch of rows is committed with its place",
    "copy.facts": "a batch of facts is committed",
    "copy.verified": "the target has all of it, neither end knows",
    "copy.moved": "the source is marked as moved, the target is not open yet",
    "copy.refilled": "the target's copy is not the source's any more, and all of it was deleted",
    "copy.undoing": "the target is closed again, the source is still marked",
}

# Of a change of `config.yaml` that the gateway makes.
CONFIG_POINTS: Mapping[str, str] = {
    "config.secret_kept": "a secret is in its file, and `config.yaml` does not name it",
    "config.before_kept": "the file before is kept, and `config.yaml` is still the same",
    "config.exchanged": "`config.yaml` is the new one, its name not durable",
}

ALL = frozenset({
    **POINTS, **TOOL_POINTS, **SCHEDULE_POINTS, **HOOK_POINTS, **SPEECH_POINTS, **MEMORY_POINTS, **WORKER_POINTS,
    **ANSWER_POINTS, **COPY_POINTS, **CONFIG_POINTS,
})  # fmt: skip

_act: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that the process has come to a point; from any thread."""
    if _act is not None:
        _act(name)


def arm(setting: str) -> None:
    """Switch failpoints on, as the environment variable does; an empty text switches them off.

    Raises:
        ValueError: the text is neither form, or there is no such point.
    """
    global _act  # noqa: PLW0603 (one switch for the process, so that a point costs one look)
    verb, _, rest = setting.partition(" ")
    if not setting:
        _act = None
    elif verb == "note" and rest:
        _act = _noting(rest)
    elif verb == "kill":
        name, _, count = rest.partition(" ")
        if name not in ALL or not (count or "1").isdigit():
            raise ValueError(f"{VARIABLE}: {setting!r} names no failpoint; expected one of {', '.join(POINTS)}")
        _act = _killing(name, int(count or "1"))
    else:
        raise ValueError(f"{VARIABLE}: {setting!r} is not understood; expected `kill NAME COUNT` or `note FILE`")


def _killing(wanted: str, count: int) -> Callable[[str], None]:
    lock = threading.Lock()
    left = count

    def act(name: str) -> None:
        nonlocal left
        if name != wanted:
            return
        with lock:
            left -= 1
            if left:
                return
            sys.stderr.write(f"killed at the failpoint {name}, as {VARIABLE} says\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return act


def _noting(path: str) -> Callable[[str], None]:
    lock = threading.Lock()
    seen: set[str] = set()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def act(name: str) -> None:
        with lock:
            if name not in seen:
                seen.add(name)
                os.write(fd, f"{name}\n".encode())

    return act


arm(os.environ.get(VARIABLE, ""))
