"""All checks, in the order of the report, and a look with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from gateway.errors import EthosError
from gateway.ops.doctor import (
    configuration,
    files,
    leftovers,
    memory,
    people,
    running,
    server,
    skills,
    speech,
    stores,
    tools,
    web,
)
from gateway.ops.doctor.finding import Check, Finding, Ground, named
from gateway.runtime.logs import hiding, secrets_in

_IN_THE_WAY = "check"


@dataclass(frozen=True, slots=True)
class Look:
    """One check.

    Attributes:
        page: of the dashboard, where what it finds is seen or done; a finding may name another.
        is_quick: it takes a moment only. Others read whole files, try sandboxes, or ask servers.
    """

    check: Check
    page: str = ""
    is_quick: bool = True


LOOKS: Sequence[Look] = (
    Look(configuration.versions),
    Look(configuration.configuration, "settings"),
    Look(running.configuration, "settings"),
    Look(configuration.personalities, "personalities"),
    Look(configuration.models, "settings"),
    Look(configuration.answers, "settings", is_quick=False),
    Look(configuration.embeddings, "settings", is_quick=False),
    Look(tools.packages, "tools", is_quick=False),
    Look(tools.sandbox, "tools", is_quick=False),
    Look(running.servers, "servers"),
    Look(skills.skills, "skills", is_quick=False),
    Look(configuration.telemetry, "settings"),
    Look(web.web, "settings", is_quick=False),
    Look(speech.speech, "settings", is_quick=False),
    Look(files.data_directory_exists),
    Look(files.modes),
    Look(files.out_of_reach),
    Look(files.file_system),
    Look(files.disk_space),
    Look(files.web_token),
    Look(files.left_by_a_dead_gateway),
    Look(files.port, "settings"),
    Look(leftovers.leftovers),
    Look(running.running, "channels"),
    Look(server.server, is_quick=False),
    Look(tools.workspaces, is_quick=False),
    Look(stores.database, is_quick=False),
    Look(stores.search_index, is_quick=False),
    Look(stores.queues, "deliveries"),
    Look(memory.memory, "memory", is_quick=False),
    Look(stores.memory_journal, "memory"),
    Look(stores.shared_memory, "personalities"),
    Look(stores.identity_map, "people"),
    Look(people.access, "people"),
    Look(people.told_alone, "people"),
    Look(stores.clock),
    Look(stores.backups),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding, and the check that finds it; None: the running gateway says so."""

    finding: Finding
    look: Look | None


async def examine(ground: Ground, *, slow: Sequence[Seen] | None = None) -> list[Seen]:
    """Run the checks, in the order of the report; what blocks does so in a thread.

    Args:
        slow: what the slow checks found before, which then are not run; None: they are run, too.
    """
    home = ground.home
    if home.is_dir() and not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        shut = Finding("home", "problem", f"You may not use {home}.", "Run ethos as the user who owns it.")
        return [Seen(shut, None)]
    seen: list[Seen] = []
    for look in LOOKS:
        if look.is_quick or slow is None:
            seen += [one for one in await look_with(look, ground) if not _is_said(one.finding, seen)]
    seen += slow or ()
    told = "\n".join(one.finding.what for one in seen).casefold()
    hide = hiding(secrets_in(ground.config))
    also = [_shown(finding, hide) for finding in running.told_by_gateway(ground)]
    return seen + [Seen(finding, None) for finding in also if finding.what.casefold() not in told]


async def look_with(look: Look, ground: Ground) -> list[Seen]:
    """What one check finds."""
    try:
        found = look.check(ground)
        if isinstance(found, AsyncIterator):
            findings = [one async for one in found]
        else:
            findings = await asyncio.to_thread(list, found)
    except (EthosError, OSError) as error:  # what one check is there to find can be in the way of another
        advice = "Fix this, then run the doctor again."
        findings = [Finding(named(_IN_THE_WAY, str(error)), "problem", str(error), advice)]
    hide = hiding(secrets_in(ground.config))
    placed = [one if one.page or one.level == "note" else replace(one, page=look.page) for one in findings]
    return [Seen(_shown(one, hide), look) for one in placed]


def _is_said(finding: Finding, seen: Sequence[Seen]) -> bool:
    """Whether an error that was in the way of a check has been found by the check for it."""
    is_error = finding.id.startswith(_IN_THE_WAY)
    return is_error and any(finding.what.startswith(one.finding.what.rstrip(".")) for one in seen)


def _shown(finding: Finding, hide: Callable[[str], str]) -> Finding:
    """The same; an error may quote what a library said, and with it a secret."""
    return replace(finding, what=hide(finding.what))
