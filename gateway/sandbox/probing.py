"""Tries at the start which tier works here, by a program that tries to get out."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.sandbox import probe
from gateway.sandbox.running import SandboxFailed, run, temporary
from gateway.sandbox.tiers import Command, Landlock, Limits, Plan, Tier, TierName, bubblewrap

_PR_SET_DUMPABLE = 4
_PROBE = Path(probe.__file__)
_LIMITS = Limits(wall_s=10.0)
_REMEDIES: Mapping[TierName, str] = {
    "bubblewrap": "install it with `apt install bubblewrap`, and let ordinary users make user namespaces",
    "landlock": "use a kernel 5.13 or newer with Landlock, and a container engine that lets its calls through",
    "command": "correct the words of `sandbox.command`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The tier in use, and why the stronger ones are not.

    Attributes:
        tier: None where none works; tools that need one are not offered then.
        faults: of each tier that was tried and does not work, why, and what to do.
    """

    tier: Tier | None
    faults: Mapping[TierName, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """One line for people; empty where a tier works."""
        if self.tier is not None:
            return ""
        return "; ".join(f"{name}: {fault}" for name, fault in self.faults.items())


async def find_sandbox(words: Sequence[str] = ()) -> Sandbox:
    """The first tier that keeps a probe in; `words` is what the operator puts in front, and then only that is tried."""
    faults: dict[TierName, str] = {}
    tiers: list[tuple[TierName, Tier | None]] = [("bubblewrap", bubblewrap()), ("landlock", Landlock())]
    if words:
        tiers = [("command", Command(words))]
    for name, tier in tiers:
        fault = "it is not installed" if tier is None else await fault_of(tier)
        if tier is not None and fault is None:
            return Sandbox(tier=tier, faults=faults)
        faults[name] = f"{fault}; {_REMEDIES[name]}"
    return Sandbox(tier=None, faults=faults)


def keep_memory_private() -> None:
    """Let no other process of this user read this one's memory and environment, where secrets are; prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


async def fault_of(tier: Tier) -> str | None:
    """Why a tier does not work here; None where it does."""
    async with temporary() as workspace, temporary() as place, temporary() as elsewhere:
        secret = elsewhere / "secret"
        secret.write_text("a file of this user")
        plan = Plan(workspace=workspace, temporary=place, readable=(_PROBE,), limits=_LIMITS)
        try:
            ran = await run(tier, plan, [sys.executable, "-I", "-S", str(_PROBE), str(secret)])
        except SandboxFailed as error:
            return str(error)
    if ran.exit_code != 0:
        return f"the probe ended with {ran.exit_code}: {ran.output[-200:].decode(errors='replace').strip()}"
    out = [name for name, is_out in json.loads(ran.output).items() if is_out]
    return f"a program gets out of it: {', '.join(out)}" if out else None
