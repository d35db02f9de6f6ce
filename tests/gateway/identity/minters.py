"""A process that meets people: `python -m tests.gateway.identity.minters MAP KEYS [in-turn]`, KEYS a JSON list.

It says `ready` and begins when its standard input is closed, so that many processes can be let go together. Without
`in-turn` all keys are resolved at once; then it prints one line of JSON, the user ids in the same order. With it, one
after the other; for each a line `key id` is printed.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from gateway.people.identity import IdentityMap


def start(path: Path, keys: list[str], *mode: str) -> subprocess.Popen[bytes]:
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
        return [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def meet_together(path: Path, keys: list[str]) -> None:
    people = IdentityMap(path, lock_timeout_s=50)
    print(json.dumps(await asyncio.gather(*(people.resolve(key, "") for key in keys))))  # noqa: T201 (it is read)


async def meet_in_turn(path: Path, keys: list[str]) -> None:
    people = IdentityMap(path, lock_timeout_s=50)
    for key in keys:
        print(key, await people.resolve(key, ""), flush=True)  # noqa: T201 (it is read)


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201 (it is read)
    sys.stdin.read()
    meet = meet_in_turn if sys.argv[3:] == ["in-turn"] else meet_together
    asyncio.run(meet(Path(sys.argv[1]), json.loads(sys.argv[2])))
