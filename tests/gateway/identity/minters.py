"""A process that meets people: `python -m tests.gateway.identity.minters MAP KEYS [in-turn]`, KEYS a JSON list.

MAP is a file of JSON, a database of SQLite that ends in `.db`, or the address of a server.

It says `ready` and begins when its standard input is closed, so that many processes can be let go together. Without
`in-turn` all keys are resolved at once; then it prints one line of JSON, the user ids in the same order. With it, one
after the other; for each a line `key id` is printed.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.people.identity import IdentityMap
from gateway.people.identity.identities import Identities
from gateway.store.accounts import SqlAccounts
from gateway.store.stores import Stores, open_postgres, open_store


def start(path: Path | str, keys: list[str], *mode: str) -> subprocess.Popen[bytes]:
    """Start such a process; it is ready when this returns."""
    command = [sys.executable, "-m", "tests.gateway.identity.minters", str(path), json.dumps(keys), *mode]
    root = Path(__file__).parents[3]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Let it begin."""
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None


def run_together(processes: list[subprocess.Popen[bytes]]) -> list[list[str]]:
    """Let all go at once; the user ids that each was told."""
    try:
        for process in processes:
            let_go(process)
        # The answer is the last line: a busy machine may log that a lock was waited for.
        return [json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def opened(address: str) -> Stores:
    """A database of either engine."""
    return open_postgres(address, connections=2) if "://" in address else open_store(Path(address))


@asynccontextmanager
async def people_of(address: str) -> AsyncIterator[Identities]:
    if address.endswith(".json"):
        yield IdentityMap(Path(address), lock_timeout_s=50)
        return
    store = opened(address)
    try:
        yield SqlAccounts(store.engine.of("accounts"))
    finally:
        await store.close()


async def meet_together(address: str, keys: list[str]) -> None:
    async with people_of(address) as people:
        print(json.dumps(await asyncio.gather(*(people.resolve(key, "") for key in keys))))  # noqa: T201 (it is read)


async def meet_in_turn(address: str, keys: list[str]) -> None:
    async with people_of(address) as people:
        for key in keys:
            print(key, await people.resolve(key, ""), flush=True)  # noqa: T201 (it is read)


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201 (it is read)
    sys.stdin.read()
    meet = meet_in_turn if sys.argv[3:] == ["in-turn"] else meet_together
    asyncio.run(meet(sys.argv[1], json.loads(sys.argv[2])))
