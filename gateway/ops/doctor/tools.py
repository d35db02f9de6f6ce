"""The checks of what the agent can do: packages of tools, and the sandbox that programs run in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from gateway.config.packages import KindUnusable
from gateway.domain.root_secret import read_root_secret
from gateway.errors import ConfigError, StoreError
from gateway.ops.doctor.finding import Finding, Ground


def packages(ground: Ground) -> Iterator[Finding]:
    """Packages of tools that are left out."""
    for chosen in () if ground.config is None else ground.config.tools.packages:
        try:
            ground.parts.made_tools(ground.home, chosen)
        except KindUnusable as error:
            what = f"The tools of {chosen.package} are left out: {error}."
            yield Finding(
                f"tools-{chosen.package}",
                "problem",
                what,
                f"`ethos plugins check {chosen.package}` says when it is mended.",
            )


async def workspaces(ground: Ground) -> AsyncIterator[Finding]:
    """The directory that all workers share is there, and the same one as theirs."""
    config = ground.config
    if config is None or not config.has_others or config.tools.workspaces is None or config.secret is None:
        return
    secret = read_root_secret(config.secret.get_secret_value())
    try:
        async with ground.opened_store() as store:
            if store is not None:
                is_used = await ground.parts.look_at_workspaces(config, ground.home, store.engine, secret)
                state = "the one of all workers" if is_used else "empty; the first worker begins it"
                yield Finding(
                    "workspaces", "note", f"The directory of workspaces, {config.tools.workspaces}, is {state}."
                )
    except ConfigError as error:
        yield Finding(
            "workspaces", "problem", f"Workers cannot start here: {error}.", 'See docs/sandbox.md, "With many workers".'
        )
    except StoreError:
        return  # the check of the server says why


async def sandbox(ground: Ground) -> AsyncIterator[Finding]:
    """Where programs of the model and of servers of tools run; each way is tried."""
    config = ground.config
    if config is None or not (config.tools.has_programs or config.mcp.has_commands):
        return
    from gateway.sandbox.probing import find_sandbox

    found = await find_sandbox(config.sandbox.command)
    tried = "\n".join(f"{name}: {fault}." for name, fault in found.faults.items())
    stronger = f" A stronger one does not work: {tried}" if tried else ""
    if found.tier is not None:
        who = ["programs that the agent writes"] * config.tools.has_programs
        who += ["servers of tools"] * config.mcp.has_commands
        yield Finding("sandbox", "note", f"The sandbox of {' and '.join(who)} is {found.tier.name}.{stronger}")
        return
    if config.tools.has_programs:
        yield Finding(
            "sandbox", "problem", "No sandbox works here, so the agent has no tools that run programs.", tried
        )
    if config.mcp.has_commands:
        what = "No sandbox works here, so servers of tools run as ordinary programs of your user."
        yield Finding("sandbox-servers", "warning", what, tried)
