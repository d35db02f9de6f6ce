"""The checks of what the agent can do: packages of tools, and the sandbox that programs run in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from gateway.app.tools import made_tools
from gateway.cli.finding import Finding, Ground
from gateway.config.packages import KindUnusable


def packages(ground: Ground) -> Iterator[Finding]:
    """Packages of tools that are left out."""
    for chosen in () if ground.config is None else ground.config.tools.packages:
        try:
            made_tools(ground.home, chosen)
        except KindUnusable as error:
            what = f"The tools of {chosen.package} are left out: {error}."
            yield Finding("problem", what, f"`ethos plugins check {chosen.package}` says when it is mended.")


async def sandbox(ground: Ground) -> AsyncIterator[Finding]:
    """Where programs of the model run; each way is tried."""
    config = ground.config
    if config is None or not config.tools.has_programs:
        return
    from gateway.sandbox.probing import find_sandbox

    found = await find_sandbox(config.sandbox.command)
    tried = "\n".join(f"{name}: {fault}." for name, fault in found.faults.items())
    if found.tier is None:
        yield Finding("problem", "No sandbox works here, so the agent has no tools that run programs.", tried)
    else:
        stronger = f" A stronger one does not work: {tried}" if tried else ""
        yield Finding("note", f"Programs that the agent writes run in the sandbox {found.tier.name}.{stronger}")
